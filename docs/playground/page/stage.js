// The picture: members in a circle, their deadlines as rings, and messages between them.

const SVG = "http://www.w3.org/2000/svg";
export function draw(name, attributes = {}, ...inside) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

const WIDTH = 440, AROUND = 2 * Math.PI;
const LABEL_MAX = 24, FACTS = { 2: 3, 3: 2 };

export const lane = (index) => `var(--lane-${index % 5})`;
export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const inWords = (name) => name.replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();

// Where each member is.
function places(members) {
  const radius = members.length > 3 ? 27 : 32;
  return members.map((name, index) => {
    const angle = members.length === 2 ? Math.PI * (1 + index) : -Math.PI / 2 + (AROUND * index) / members.length;
    return members.length === 2
      ? { name, radius, x: WIDTH / 2 + 135 * Math.cos(angle), y: 62 }
      : { name, radius, x: WIDTH / 2 + 152 * Math.cos(angle), y: 142 + (members.length > 3 ? 98 : 104) * Math.sin(angle) };
  });
}

// Of a message: the place after a part of its way.  Ways in the two directions lie side by side.
function along(from, to, part) {
  const length = Math.hypot(to.x - from.x, to.y - from.y), x = (to.x - from.x) / length, y = (to.y - from.y) / length;
  const gone = from.radius + 14 + part * (length - from.radius - to.radius - 28);
  return { x: from.x + x * gone - y * 7, y: from.y + y * gone + x * 7, right: (part < 0.5) === (x > -0.2) };
}

export class Stage {
  // on: functions `member(name)` and `message(number)`, called for what was pressed.
  constructor(svg, on) {
    this.svg = svg; this.on = on;
  }

  show(history) {
    this.history = history;
    this.places = places(history.members);
    const facts = this.facts = FACTS[history.members.length] ?? 1;
    const top = Math.min(...this.places.map(({ y, radius }) => y - radius)) - 9;
    const bottom = Math.max(...this.places.map(({ y, radius }) => y + radius)) + 34 + 14 * facts;
    this.svg.setAttribute("viewBox", `0 ${top} ${WIDTH} ${bottom - top}`);
    this.place = Object.fromEntries(this.places.map((place) => [place.name, place]));
    this.links = draw("g", { class: "links" });
    this.moving = draw("g", { class: "moving" });
    this.members = draw("g", { class: "members" });
    this.svg.replaceChildren(this.links, this.moving, this.members);
    this.shown = this.places.map((place, index) => this.member(place, index));
  }

  member({ name, x, y, radius }, index) {
    const ring = draw("path", { class: "ring" }), body = draw("circle", { class: "body", r: radius });
    const group = draw("g", { class: "member", transform: `translate(${x} ${y})`, tabindex: 0, role: "button", style: `--lane: ${lane(index)}` },
      draw("circle", { class: "orbit", r: radius + 5 }), ring, body,
      draw("text", { class: "called", y: 5 }, name),
      draw("text", { class: "state", y: radius + 21 }),
      ...Array.from({ length: this.facts }, (_, number) => draw("text", { class: "fact", y: radius + 35 + 14 * number })));
    const press = () => this.on.member(name);
    group.onclick = press;
    group.onkeydown = (event) => { if (event.key === "Enter") press(); };
    this.members.append(group);
    return { group, ring, radius };
  }

  // What is so after step `at`, at a time `now`, which may be on the way to the next one.
  tell(at, now, views, selected) {
    const { history } = this, step = history.steps[at];
    this.links.replaceChildren(...this.pairs(step));
    this.shown.forEach(({ group, ring, radius }, index) => {
      const name = history.members[index], view = views[name], [alive, state, due, facts] = view.now;
      group.setAttribute("class", `member${alive ? "" : " dead"}${step.node === name ? " acts" : ""}${selected.node === name ? " chosen" : ""}${["LEADER"].includes(state) ? " leads" : ""}`);
      group.querySelector(".state").textContent = alive ? state : "not there";
      group.querySelectorAll(".fact").forEach((line, number) => { line.textContent = alive && facts[number] ? shortened(facts[number].join(/\d$/.test(facts[number][0]) ? ": " : " "), 30) : ""; });
      group.setAttribute("aria-label", `${name}, ${alive ? state : "not there"}`);
      ring.setAttribute("d", alive && due != null ? arc(radius + 5, (due - now) / Math.max(0.001, due - view.since)) : "");
    });
    this.moving.replaceChildren(...this.messages(at, now, step, selected));
  }

  pairs(step) {
    const apart = new Set((step.apart ?? []).map((pair) => pair.join()));
    return this.places.flatMap((one, index) => this.places.slice(index + 1).map((other) => {
      const cut = apart.has([one.name, other.name].sort().join());
      return draw("line", { x1: one.x, y1: one.y, x2: other.x, y2: other.y, class: cut ? "cut" : "" });
    }));
  }

  messages(at, now, step, selected) {
    const flying = this.history.messages.filter((each) => each.sent <= at && (each.step === null || each.step > at));
    const few = flying.length < 5;
    const shown = flying.map((message) => {
      const all = Math.max(0.001, message.due - message.at);
      const part = message.fate === "waits" && now >= message.due ? 0.5 : Math.min(0.97, Math.max(0, (now - message.at) / all));
      return this.dot(message, part, few, selected.message === message.number);
    });
    if (step.message !== undefined && step.kind === "lost") shown.push(this.cross(this.history.messages[step.message]));
    return shown;
  }

  dot(message, part, named, chosen) {
    const spot = along(this.place[message.from], this.place[message.to], part);
    const index = this.history.members.indexOf(message.from);
    const group = draw("g", { class: `message ${message.carrier}${chosen ? " chosen" : ""}${message.changes.length ? " changed" : ""}`, transform: `translate(${spot.x} ${spot.y})`, style: `--lane: ${lane(index)}` },
      draw("circle", { r: 13, class: "touch" }), message.carrier === "end" ? draw("rect", { x: -4, y: -4, width: 8, height: 8 }) : draw("circle", { r: 5.5 }));
    if (named) {
      const words = shortened(inWords(message.label), LABEL_MAX);
      const [x, y] = this.places.length > 2 ? [10, 4] : [0, message.number % 2 ? -10 : 19]; // two share one way
      group.append(draw("text", { x: spot.right ? x : -x, y, style: `text-anchor: ${spot.right ? "start" : "end"}` }, words));
    }
    group.append(draw("title", {}, `${message.label}, ${message.from} to ${message.to}`));
    group.onclick = () => this.on.message(message.number);
    return group;
  }

  cross(message) {
    const spot = along(this.place[message.from], this.place[message.to], 0.8);
    return draw("g", { class: "lost", transform: `translate(${spot.x} ${spot.y})` }, draw("path", { d: "M-6-6 6 6M6-6-6 6" }));
  }
}

// The part of a circle that is left until a deadline.
function arc(radius, part) {
  const left = Math.min(0.9999, Math.max(0, part)) * AROUND;
  if (!left) return "";
  const x = radius * Math.sin(left), y = -radius * Math.cos(left);
  return `M0 ${-radius} A${radius} ${radius} 0 ${left > Math.PI ? 1 : 0} 1 ${x.toFixed(2)} ${y.toFixed(2)}`;
}
