// The playground: which conversation, which step, what is changed.  All that is in the address.

import { make } from "./bytes.js";
import { Detail } from "./detail.js";
import { about, history, ready } from "./engine.js";
import { Log } from "./log.js";
import { Stage } from "./stage.js";

const $ = (id) => document.getElementById(id);
const CHANGE = /^(?:(?:drop|late|twice|break|heal)-\d+|byte-\d+-\d+-\d+|(?:kill|start|cut)-\w+-\d+|do-\w+-\w+-\d+)$/;
const still = matchMedia("(prefers-reduced-motion: reduce)");

const now = { name: "", changes: [], at: 0, history: null, message: null, node: null, able: false, playing: false };
let frame = 0;

// ---- Where we are.

// #NAME/STEP/CHANGE/CHANGE; pages of the site link to ?NAME.
function read() {
  const [name, at, ...changes] = decodeURIComponent((location.hash || location.search).slice(1)).split("/");
  const known = about.scenarios.some((each) => each.name === name);
  return { name: known ? name : about.scenarios[0].name, at: Number(at) || 0, changes: known ? changes.filter((each) => CHANGE.test(each)) : [] };
}

const address = () => `#${[now.name, now.at, ...now.changes].join("/")}`;

// The step from which on a change makes a difference.
function begins(change) {
  const parts = change.split("-"), verb = parts[0];
  if (["drop", "late", "twice", "break", "byte"].includes(verb)) return now.history?.messages[Number(parts[1])]?.sent ?? 0;
  return Number(parts[parts.length - 1]) + 1;
}

// What each member is like after a step, and since when its deadline is what it is.
function viewsAt(at) {
  const views = Object.fromEntries(now.history.members.map((name) => [name, { now: [false, "", null, []], since: 0 }]));
  for (const step of now.history.steps.slice(0, at + 1)) {
    for (const [name, view] of Object.entries(step.views ?? {})) {
      views[name] = { now: view, since: view[2] === views[name].now[2] ? views[name].since : step.at };
    }
  }
  return views;
}

// ---- Showing it.

let views;

function tell() {
  const { history: told, at } = now;
  views = viewsAt(at);
  stage.tell(at, told.steps[at].at, views, now);
  log.tell(at, now);
  detail.tell(told, at, views, now);
  $("place").value = at;
  $("clock").textContent = `${at} / ${told.steps.length - 1} · ${told.steps[at].at.toFixed(2)} s`;
  $("back").disabled = $("first").disabled = at === 0;
  $("on").disabled = at === told.steps.length - 1;
  keepAddress();
}

function keepAddress() {
  if (location.hash !== address()) window.history.replaceState(null, "", location.pathname + address());
}

function go(at) {
  cancelAnimationFrame(frame);
  Object.assign(now, { at: Math.min(now.history.steps.length - 1, Math.max(0, at)), message: null, node: now.node });
  tell();
}

// To the next step, while what is on its way moves.
function goOn(then) {
  const { history: told, at } = now;
  if (at >= told.steps.length - 1) { stop(); return; }
  const from = told.steps[at].at, to = told.steps[at + 1].at;
  const takes = still.matches ? 0 : now.playing ? Math.min(1000, 150 + (to - from) * 700) : 240;
  const begun = performance.now();
  const draw = (time) => {
    const part = takes ? Math.min(1, (time - begun) / takes) : 1;
    if (part < 1) {
      stage.tell(at, from + (to - from) * part, views, now);
      frame = requestAnimationFrame(draw);
    } else { go(at + 1); then?.(); }
  };
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(draw);
}

function play() {
  if (now.playing) { stop(); return; }
  now.playing = true;
  $("play").classList.add("playing"); $("play").setAttribute("aria-label", "Stop");
  if (now.at === now.history.steps.length - 1) go(0);
  const next = () => { if (now.playing) setTimeout(() => now.playing && goOn(next), still.matches ? 700 : 100); };
  goOn(next);
}

function stop() {
  now.playing = false;
  cancelAnimationFrame(frame);
  $("play").classList.remove("playing"); $("play").setAttribute("aria-label", "Play");
}

// ---- Changing it.

function select(part) {
  stop();
  Object.assign(now, { message: null, node: null }, part);
  pane("detail");
  tell();
}

// A change makes a new future: those that came later than it are gone.
async function change(text, at) {
  const from = begins(text);
  await show(now.name, [...now.changes.filter((each) => begins(each) <= from && each !== text), text], at);
}

async function show(name, changes, at) {
  stop();
  document.body.classList.add("working");
  let told, failed = "";
  try {
    told = await history(name, changes);
  } catch (error) {
    failed = error.message;
    changes = now.name === name ? now.changes : [];
    told = await history(name, []);
    if (changes.length) told = now.history;
  }
  const before = now.name;
  Object.assign(now, { name, changes, history: told, at: Math.min(Math.max(0, at), told.steps.length - 1), message: null });
  if (before !== name) now.node = null;
  document.body.classList.remove("working");
  draw();
  if (failed) engine(failed, true);
}

function draw() {
  const { history: told } = now, scenario = about.scenarios.find((each) => each.name === now.name);
  $("scenario").value = now.name;
  $("title").textContent = scenario.title;
  document.title = `${scenario.title} · ${scenario.room} · culm playground`;
  const page = make("a", "", scenario.room === "bymux" ? "How bymux works" : `How ${scenario.room} works`);
  page.href = `../${scenario.page}`;
  $("story").replaceChildren(`${scenario.story} `, page);
  $("place").max = told.steps.length - 1;
  stage.show(told);
  log.show(told, now.changes.length ? Math.min(...now.changes.map(begins)) : -1);
  tries(); changes();
  tell();
  document.body.dataset.ready = now.changes.join(" ") || "plain";
}

async function tries() {
  const { tries: proposed } = await history(now.name, []);
  const made = proposed.map(({ words, change: text, step }) => {
    const button = make("button", "", words);
    button.disabled = !now.able;
    button.setAttribute("aria-pressed", now.changes.includes(text));
    button.onclick = () => show(now.name, now.changes.includes(text) ? [] : [text], step + (/^(kill|start|cut|heal|do)/.test(text) ? 1 : 0));
    return button;
  });
  $("tries").replaceChildren(make("h3", "", "What if"), ...made);
}

const SAID = { drop: "lost", late: "delayed", twice: "sent twice", break: "its connection broken", byte: "changed", kill: "killed", start: "started", cut: "cut off" };

function inWords(text) {
  const [verb, first, second, third] = text.split("-"), message = now.history.messages[Number(first)];
  const named = message ? `${message.label.split(",")[0]} from ${message.from}` : `message ${first}`;
  if (verb === "byte") return `${named}: byte ${second} is ${Number(third).toString(16).padStart(2, "0")}`;
  if (verb === "heal") return "the network heals";
  if (verb === "do") return `${first}: ${now.history.deeds[second] ?? second}`;
  return second === undefined ? `${named}: ${SAID[verb]}` : `${first}: ${SAID[verb]}`;
}

function changes() {
  const rows = now.changes.map((text, index) => {
    const row = make("li"), where = make("button", "where", inWords(text)), undo = make("button", "undo", "Undo");
    where.title = "Go there";
    where.onclick = () => go(begins(text));
    undo.onclick = () => show(now.name, now.changes.slice(0, index), Math.min(now.at, begins(text)));
    row.append(where, undo);
    return row;
  });
  $("changes").replaceChildren(...rows);
  $("changes").hidden = !rows.length;
  const refused = now.history.refused ?? [];
  engine(refused.length ? `Nothing changed: ${refused.join("; ")}.` : status, refused.length > 0);
}

let status = "Python is starting, to make what you change happen…";
function engine(words, bad = false) {
  $("engine").textContent = words;
  $("engine").classList.toggle("bad", bad);
}

// ---- Controls.

function pane(name) {
  document.querySelector("main").dataset.pane = name;
  for (const tab of document.querySelectorAll("[data-pane][role=tab]")) tab.setAttribute("aria-selected", tab.dataset.pane === name);
  if (name === "steps") log.tell(now.at, now);
}

async function share() {
  const words = $("share").textContent;
  try {
    await navigator.clipboard.writeText(location.href);
    $("share").textContent = "Copied";
  } catch {
    $("share").textContent = "It is in the address bar";
  }
  setTimeout(() => { $("share").textContent = words; }, 1500);
}

// By key: a change of the message that is selected or has just come, or of the member.
function key(verb) {
  const step = now.history.steps[now.at], number = now.message ?? step.message;
  if (verb === "kill") {
    const node = now.node ?? step.node;
    if (node) change(`${views[node].now[0] ? "kill" : "start"}-${node}-${now.at}`, now.at + 1);
  } else if (number !== undefined && number !== null) {
    const message = now.history.messages[number];
    if (now.history.can[message.carrier].includes(verb)) change(`${verb}-${number}`, message.sent);
  }
}

const KEYS = {
  ArrowRight: () => { stop(); goOn(); }, ArrowDown: () => { stop(); go(now.at + 1); }, j: () => { stop(); go(now.at + 1); },
  ArrowLeft: () => { stop(); go(now.at - 1); }, ArrowUp: () => { stop(); go(now.at - 1); }, k: () => key("kill"),
  PageDown: () => go(now.at + 10), PageUp: () => go(now.at - 10),
  Home: () => { stop(); go(0); }, End: () => { stop(); go(now.history.steps.length - 1); },
  " ": play, s: share, Escape: () => select({}),
  d: () => key("drop"), l: () => key("late"), t: () => key("twice"), b: () => key("break"),
  u: () => { if (now.changes.length) show(now.name, now.changes.slice(0, -1), now.at); },
};

document.onkeydown = (event) => {
  const press = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName) && event.target.type !== "range";
  const pressing = event.key === " " && event.target.tagName === "BUTTON";
  if (!press || typing || pressing || event.metaKey || event.ctrlKey || event.altKey) return;
  if ("dltbk".includes(event.key.toLowerCase()) && !now.able) return;
  event.preventDefault();
  press();
};

const stage = new Stage($("stage"), { member: (node) => select({ node }), message: (message) => select({ message }) });
const log = new Log({ scroll: $("steps"), rows: $("rows"), lines: $("lines"), log: $("log") }, {
  step: (at) => { stop(); now.node = null; go(at); }, message: (message) => select({ message }),
});
const detail = new Detail($("step"), {
  change, message: (message) => select({ message }), member: (node) => select({ node }), step: (at) => { now.node = null; go(at); }, able: () => now.able,
});

$("first").onclick = KEYS.Home;
$("back").onclick = KEYS.ArrowLeft;
$("on").onclick = KEYS.ArrowRight;
$("play").onclick = play;
$("share").onclick = share;
$("place").oninput = (event) => { stop(); go(Number(event.target.value)); };
$("scenario").onchange = (event) => show(event.target.value, [], 0);
for (const tab of document.querySelectorAll("[data-pane][role=tab]")) tab.onclick = () => pane(tab.dataset.pane);
window.onhashchange = () => { if (location.hash !== address()) arrive(); };

for (const room of new Set(about.scenarios.map((each) => each.room))) {
  const group = make("optgroup");
  group.label = room;
  for (const each of about.scenarios.filter((one) => one.room === room)) {
    const option = make("option", "", each.title);
    option.value = each.name;
    group.append(option);
  }
  $("scenario").append(group);
}

async function arrive() {
  const { name, at, changes: wanted } = read();
  if (!now.able || !wanted.length) await show(name, [], at);
  if (!wanted.length) return;
  engine("Python is starting, to make the changes of this link happen…");
  try {
    await ready;
  } catch (error) {
    engine(error.message, true);
    return;
  }
  await show(name, wanted, at);
}

ready.then((python) => {
  now.able = true;
  status = `culm ${about.culm} runs in this page, on Python ${python}.`;
  if (now.history) { draw(); }
}, (error) => {
  status = error.message;
  engine(status, true);
});
await arrive();
