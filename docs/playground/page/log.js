// All steps: a line for each member, messages between the lines, and beside them what happened.

import { make } from "./bytes.js";
import { draw, lane, shortened } from "./stage.js";

const ROW = 30, EVENTS_MAX = 3;

export class Log {
  // on: functions `step(number)` and `message(number)`.
  constructor(parts, on) { Object.assign(this, parts); this.on = on; }

  show(history, changedFrom) {
    this.history = history;
    const narrow = this.scroll.clientWidth < 480;
    this.gap = narrow ? (history.members.length > 3 ? 17 : 24) : 30;
    this.left = 18;
    const width = this.left * 2 + this.gap * (history.members.length - 1), height = ROW * history.steps.length;
    Object.assign(this.lines.style, { width: `${width}px`, height: `${height}px` });
    this.rows.style.setProperty("--graph", `${width}px`);
    this.lines.replaceChildren(...this.lives(), ...history.messages.map((each) => this.arrow(each)), ...this.dots());
    this.log.replaceChildren(...history.steps.map((step, number) => this.row(step, number, number === changedFrom)));
  }

  x(name) { return this.left + this.gap * this.history.members.indexOf(name); }
  y(step) { return ROW * step + ROW / 2; }

  // Each member's line, for as long as it lives.
  lives() {
    const { members, steps } = this.history;
    return members.flatMap((name, index) => {
      const parts = [];
      let from = null;
      steps.forEach((step, number) => {
        const view = step.views?.[name];
        if (!view) return;
        if (view[0] && from === null) from = number;
        if (!view[0] && from !== null) { parts.push([from, number]); from = null; }
      });
      if (from !== null) parts.push([from, steps.length - 0.5]);
      return parts.map(([begin, end]) => draw("line", { class: "life", x1: this.x(name), x2: this.x(name), y1: this.y(begin), y2: this.y(end), style: `--lane: ${lane(index)}` }));
    });
  }

  arrow(message) {
    const { members, steps } = this.history;
    const end = message.step ?? steps.length - 0.5;
    const from = [this.x(message.from), this.y(message.sent)], to = [this.x(message.to), this.y(end)];
    const lost = message.fate === "lost";
    const aim = Math.sign(to[0] - from[0]) * 5;
    const tip = lost ? [from[0] + (to[0] - from[0]) * 0.7, from[1] + (to[1] - from[1]) * 0.7] : [to[0] - aim, to[1]];
    const group = draw("g", { class: `arrow${lost ? " gone" : ""}`, "data-message": message.number, style: `--lane: ${lane(members.indexOf(message.from))}` },
      draw("path", { d: `M${from} C${from[0]} ${from[1] + ROW / 2} ${tip[0] - aim * 2} ${tip[1]} ${tip}` }));
    if (lost) group.append(draw("path", { class: "mark", d: `M${tip[0] - 4} ${tip[1] - 4}l8 8m0-8l-8 8` }));
    group.onclick = () => this.on.message(message.number);
    return group;
  }

  dots() {
    const { members, steps } = this.history;
    return steps.flatMap((step, number) => (step.node ? [draw("circle", { class: `dot ${step.kind}`, "data-step": number, cx: this.x(step.node), cy: this.y(number), r: 4.5, style: `--lane: ${lane(members.indexOf(step.node))}` })] : []));
  }

  row(step, number, changed) {
    const index = this.history.members.indexOf(step.node);
    const row = make("li", `${step.kind}${changed ? " changed" : ""}`);
    row.dataset.step = number;
    if (index >= 0) row.style.setProperty("--lane", lane(index));
    row.append(make("time", "", step.at.toFixed(2)));
    if (step.node) row.append(make("b", "", step.node));
    if (step.label) row.append(make("span", "label", step.label));
    row.append(make("span", "words", step.words));
    const events = step.events ?? [];
    for (const [name, parts] of events.slice(0, EVENTS_MAX)) {
      const words = parts.map(([, value]) => value).filter((value) => value.length < 26).slice(0, 2).join(" ");
      row.append(make("span", "event", shortened(`${name} ${words}`, 46)));
    }
    if (events.length > EVENTS_MAX) row.append(make("span", "more", `+${events.length - EVENTS_MAX}`));
    if (step.error) row.append(make("span", "event bad", step.error));
    row.onclick = () => this.on.step(number);
    return row;
  }

  tell(at, selected) {
    for (const row of this.log.children) {
      const number = Number(row.dataset.step);
      row.classList.toggle("future", number > at);
      row.classList.toggle("here", number === at);
    }
    const messages = this.history.messages;
    for (const arrow of this.lines.querySelectorAll(".arrow")) {
      const message = messages[Number(arrow.dataset.message)];
      arrow.classList.toggle("future", message.sent > at);
      arrow.classList.toggle("chosen", selected.message === message.number || (selected.message === null && (message.step === at || message.sent === at)));
    }
    for (const dot of this.lines.querySelectorAll(".dot")) dot.classList.toggle("future", Number(dot.dataset.step) > at);
    const top = ROW * at, { scrollTop, clientHeight } = this.scroll;
    if (top < scrollTop + ROW || top > scrollTop + clientHeight - 2 * ROW) this.scroll.scrollTop = top - clientHeight / 2;
  }
}
