// What is selected: a step, a message or a member, and what can be done about it.

import { make, showBytes } from "./bytes.js";
import { lane } from "./stage.js";

const KINDS = { arrives: "input", due: "deadline", does: "verb", lost: "lost", begins: "beginning", dialled: "connection", dies: "killed", starts: "started", cut: "network", heals: "network", refused: "refused" };
const VERBS = {
  drop: ["Lose it", "D"], late: ["Delay it", "L"], twice: ["Let it come twice", "T"], break: ["Break the connection here", "B"],
};
const FATES = { came: "arrived", lost: "never arrived", waits: "waits for a way", "on its way": "on its way" };

const heading = (kind, words) => [make("div", "kind", kind), make("h2", "", words)];

// What happened, in words.
export function sentence(step) {
  const words = [step.label, step.words].filter(Boolean).join(" ");
  if (!step.node) return words;
  return ["arrives", "lost", "does"].includes(step.kind) ? `${step.node}: ${words}` : `${step.node} ${words}`;
}

function button(words, press, key) {
  const made = make("button", "", words);
  made.onclick = press;
  if (key) made.append(make("kbd", "", key));
  return made;
}

function list(title, items) {
  if (!items.length) return [];
  return [make("h3", "", title), ...items];
}

// An event or an effect: its name, and its parts.
function said([name, parts], answer) {
  const made = make("div", "value");
  made.append(make("span", "class", name));
  if (parts.length) {
    const items = make("dl");
    for (const [part, words] of parts) items.append(make("dt", "", part), make("dd", "", words));
    made.append(items);
  }
  if (answer && answer[0] !== "nothing") made.append(make("span", "out", `answered with ${answer[0]}`));
  return made;
}

export class Detail {
  // on: `change(text, step)`, `message(number)`, `member(name)`, `step(number)`, and `able()`: whether changes can be made.
  constructor(host, on) { this.host = host; this.on = on; }

  tell(history, at, views, selected) {
    this.history = history; this.at = at; this.views = views;
    const shown = selected.message !== null ? this.message(history.messages[selected.message])
      : selected.node ? this.member(selected.node) : this.step(history.steps[at], at);
    this.host.replaceChildren(...shown);
  }

  tint(name) {
    const index = this.history.members.indexOf(name);
    this.host.style.setProperty("--lane", index < 0 ? "var(--soft)" : lane(index));
  }

  step(step, number) {
    this.tint(step.node);
    if (step.kind === "lost") this.host.style.setProperty("--lane", "var(--fault)");
    const shown = heading(KINDS[step.kind], sentence(step));
    shown.push(make("p", "when", `Step ${number} of ${this.history.steps.length - 1} · ${step.at.toFixed(3)} s`));
    if (step.call) shown.push(make("p", "call", step.call));
    if (step.error) shown.push(make("div", "trouble", step.error));
    shown.push(...list("Events", (step.events ?? []).map((each) => said(each))));
    shown.push(...list("Effects, done by the store", (step.effects ?? []).map(([effect, answer]) => said(effect, answer))));
    shown.push(...list("Sent", (step.sent ?? []).map((each) => this.sent(this.history.messages[each]))));
    const message = step.message !== undefined ? this.history.messages[step.message] : null;
    if (message) shown.push(...this.choices(message), ...this.bytes(message));
    if (step.node && step.views?.[step.node]) shown.push(...this.state(step.node));
    if (!step.node) shown.push(...this.members());
    return shown;
  }

  // All members, to choose one.
  members() {
    const row = make("div", "choices");
    row.append(...this.history.members.map((name) => button(`${name}: ${this.views[name].now[1] || "not there"}`, () => this.on.member(name))));
    return [make("h3", "", "Members"), row];
  }

  sent(message) {
    const line = make("p", "goes"), press = button(`${message.label} · ${message.size} B`, () => this.on.message(message.number));
    line.append(`to ${message.to} `, press);
    if (message.fate !== "came") line.append(make("span", "out", ` ${FATES[message.fate]}`));
    return line;
  }

  message(message) {
    this.tint(message.from);
    const shown = heading(message.carrier, message.label);
    const line = make("p", "goes");
    line.append(`From ${message.from}, `, button(`step ${message.sent}`, () => this.on.step(message.sent)), `, to ${message.to}`);
    if (message.step !== null) line.append(", ", button(`step ${message.step}`, () => this.on.step(message.step)));
    line.append(`: ${FATES[message.fate]}.`);
    shown.push(line);
    if (message.changes.length) shown.push(make("p", "when", `Changed: ${message.changes.join(", ")}.`));
    return [...shown, ...this.choices(message), ...this.bytes(message)];
  }

  choices(message) {
    const can = this.history.can[message.carrier].filter((verb) => VERBS[verb]);
    if (!this.on.able() || message.changes.includes("again")) return [];
    const row = make("div", "choices");
    row.append(...can.map((verb) => button(VERBS[verb][0], () => this.on.change(`${verb}-${message.number}`, message.sent), VERBS[verb][1])));
    return [make("h3", "", "What if"), row];
  }

  bytes(message) {
    if (!message.size) return [];
    const change = this.on.able() ? (at, value) => this.on.change(`byte-${message.number}-${at}-${value}`, message.sent) : null;
    return showBytes(message, change);
  }

  state(name) {
    const [alive, state, due, facts] = this.views[name].now;
    if (!alive) return [];
    const made = make("div", "value"), items = make("dl");
    items.append(make("dt", "", "state"), make("dd", "class", state));
    if (due !== null) items.append(make("dt", "", "deadline"), make("dd", "", `in ${Math.max(0, due - this.history.steps[this.at].at).toFixed(3)} s`));
    for (const [fact, words] of facts) items.append(make("dt", "", fact), make("dd", "", words));
    made.append(items);
    return [make("h3", "", `${name} after it`), made];
  }

  member(name) {
    this.tint(name);
    const { history, at } = this, [alive] = this.views[name].now, apart = (history.steps[at].apart ?? []).length > 0;
    const shown = heading("member", name);
    shown.push(make("p", "when", alive ? `After step ${at}` : "It is not there."));
    shown.push(...this.state(name));
    if (!this.on.able()) return shown;
    const row = make("div", "choices");
    const after = (words, text, key) => row.append(button(words, () => this.on.change(`${text}-${at}`, at + 1), key));
    if (alive) after("Kill it", `kill-${name}`, "K");
    else if (history.restarts) after("Start it", `start-${name}`, "K");
    if (alive) after("Cut it off", `cut-${name}`);
    if (apart) after("Heal the network", "heal");
    if (alive) for (const [deed, words] of Object.entries(history.deeds)) after(words, `do-${name}-${deed}`);
    return [...shown, make("h3", "", "What if, now"), row];
  }
}
