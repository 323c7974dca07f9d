"use strict";

(async () => {
  const $ = (id) => document.getElementById(id);
  const make = (name, cls, text) => {
    const made = document.createElement(name);
    if (cls) made.className = cls;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // ---- Data.  A step is [side, number, time, kind, label, more].

  const decoded = (base64) => Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
  const inflated = new Blob([decoded($("data").textContent)])
    .stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const { sides, steps, window: part } = JSON.parse(await new Response(inflated).text());
  $("data").remove();
  const KINDS = ["received", "sent", "event", "effect", "answer", "call", "time", "deadline"];
  const TITLES = { received: "Bytes", event: "Events", effect: "Effects", call: "Calls", time: "Time" };
  const GROUP = { sent: "received", answer: "effect", deadline: "time" };
  const groupOf = (kind) => GROUP[kind] || kind;
  const begin = steps.length ? steps[0][2] : 0;
  const end = steps.reduce((last, step) => Math.max(last, step[2]), begin);
  const shown = { received: true, event: true, effect: true, call: true, time: false };
  const faultRows = [];
  steps.forEach((step, index) => { if (step[5].fault) faultRows.push(index); });

  // State and deadline of each side, by the steps that change them.
  const history = sides.map(() => ({ at: [], state: [], due: [] }));
  {
    // What was before the first step that is shown.
    const now = sides.map((side) => [side.state ?? null, side.due ?? null]);
    now.forEach(([state, due], side) => {
      if (state === null && due === null) return;
      history[side].at.push(-1); history[side].state.push(state); history[side].due.push(due);
    });
    steps.forEach(([side, , , kind, , more], index) => {
      if (more.state === undefined && kind !== "deadline") return;
      if (more.state !== undefined) now[side][0] = more.state;
      if (kind === "deadline") now[side][1] = more.deadline ?? null;
      const past = history[side];
      past.at.push(index); past.state.push(now[side][0]); past.due.push(now[side][1]);
    });
  }
  const lastUpTo = (sorted, value) => {
    let low = 0, high = sorted.length;
    while (low < high) { const mid = (low + high) >> 1; if (sorted[mid] <= value) low = mid + 1; else high = mid; }
    return low - 1;
  };
  // The time that a machine has been told last, on which its deadlines are.
  const told = sides.map((side) => (typeof side.now === "number" ? { at: [-1], now: [side.now] } : { at: [], now: [] }));
  steps.forEach(([side, , , kind, , more], index) => {
    const now = kind === "time" && more.call && more.call.arguments && more.call.arguments[0];
    if (typeof now === "number") { told[side].at.push(index); told[side].now.push(now); }
  });

  const seconds = (value) => {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
    if (size < 1) return `${(value * 1e3).toFixed(size < 0.1 ? 1 : 0)} ms`;
    if (size < 120) return `${value.toFixed(size < 10 ? 2 : 1)} s`;
    if (size < 7200) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
    return `${(value / 3600).toFixed(1)} h`;
  };

  // ---- Rows: the steps that are shown, and where they stand.

  const ROW = 30, SPACE_MAX = 8e6;
  let rows = [], places = new Float64Array(0), placeOf = new Int32Array(0), total = 0;
  let byTime = false, zoom = 1, selected = -1, hits = [], hitSet = new Set(), hovered = -1;

  function arrange() {
    rows = [];
    placeOf = new Int32Array(steps.length).fill(-1);
    steps.forEach((step, index) => {
      if (shown[groupOf(step[3])] || step[5].fault) { placeOf[index] = rows.length; rows.push(index); }
    });
    places = new Float64Array(rows.length);
    if (byTime) {
      const scale = (Math.max(viewHeight() - 80, rows.length * 12) * zoom) / Math.max(end - begin, 1e-9);
      rows.forEach((index, row) => { places[row] = 24 + (end > begin ? (steps[index][2] - begin) * scale : row * ROW); });
    } else {
      let at = peers.size > 1 ? 46 : 20;
      rows.forEach((index, row) => {
        if (row) at += ROW * Math.min(1.6, Math.max(0.7, zoom)) + gapHeight(steps[index][2] - steps[rows[row - 1]][2]);
        places[row] = at;
      });
    }
    total = (rows.length ? places[rows.length - 1] : 0) + 70;
    $("space").style.height = `${Math.min(total, SPACE_MAX)}px`;
  }
  const gapHeight = (gap) => (gap > 0.05 ? Math.min(64, 9 * Math.log2(gap / 0.05) + 8) : 0);

  const scroll = $("scroll"), canvas = $("diagram"), overview = $("overview");
  const viewHeight = () => scroll.clientHeight;
  const top = () => {
    const room = Math.min(total, SPACE_MAX) - viewHeight();
    return room > 0 ? (scroll.scrollTop / room) * Math.max(0, total - viewHeight()) : 0;
  };
  const scrollToPlace = (place) => {
    const room = Math.min(total, SPACE_MAX) - viewHeight();
    scroll.scrollTop = (Math.max(0, place) / Math.max(1, total - viewHeight())) * Math.max(0, room);
  };

  // ---- Lanes.

  const peers = new Map();
  if (sides.length === 1) {
    for (const [, , , kind, , more] of steps) {
      if (kind !== "received" && kind !== "sent") continue;
      for (const key of peersOf(more)) if (!peers.has(key)) peers.set(key, peers.size);
    }
    if (!peers.size) peers.set("peer", 0);
  }
  function peersOf(more) {
    const named = (more.bytes || []).map((part) => part.peer).filter((peer) => peer !== undefined);
    return named.length ? named : [more.on === undefined ? "peer" : `link ${more.on < 0 ? -1 - more.on : more.on}`];
  }
  const PEERS_MAX = 6;
  let width = 0, gutter = 84, laneX = [], peerX = [];
  function layout() {
    width = scroll.clientWidth;
    gutter = width < 560 ? 52 : 84;
    const room = width - gutter;
    if (sides.length === 1) {
      const machine = gutter + room * (peers.size > 1 ? 0.56 : 0.47);
      const count = Math.max(1, Math.min(peers.size, PEERS_MAX, 1 + Math.floor((machine - gutter - 190) / 60)));
      laneX = [machine];
      peerX = Array.from({ length: count }, (_, index) => gutter + 26 + (count > 1 ? ((machine - gutter - 190) * index) / Math.max(1, count - 1) : room * 0.02));
    } else if (sides.length === 2) {
      laneX = [gutter + room * 0.35, gutter + room * 0.65];
    } else {
      laneX = sides.map((_, index) => gutter + (room * (index + 0.35)) / sides.length);
    }
  }

  // ---- Drawing.

  let colours = {};
  function readColours() {
    const probe = document.createElement("span"); document.body.append(probe);
    for (const name of ["page", "panel", "raised", "line", "text", "soft", "faint", "accent", "lane-0", "lane-1", "lane-2", "lane-3", "effect", "fault", "hit"]) {
      probe.style.color = `var(--${name})`;
      colours[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    colours.sans = getComputedStyle(document.body).fontFamily;
    colours.mono = getComputedStyle(document.documentElement).getPropertyValue("--mono");
  }
  const laneColour = (side) => colours[`lane-${side % 4}`];
  const faded = (colour, alpha) => {
    const found = colour.match(/rgba?\(([\d.]+), ([\d.]+), ([\d.]+)/);
    if (found) return `rgba(${found[1]}, ${found[2]}, ${found[3]}, ${alpha})`;
    return `color-mix(in srgb, ${colour} ${alpha * 100}%, transparent)`;
  };
  let pen = canvas.getContext("2d");
  const widths = new Map();
  function fit(text, room) {
    if (room < 14) return "";
    const key = `${pen.font}|${text}`;
    let size = widths.get(key);
    if (size === undefined) { size = pen.measureText(text).width; if (widths.size > 20000) widths.clear(); widths.set(key, size); }
    if (size <= room) return text;
    let count = Math.floor((text.length * room) / size);
    while (count > 1 && pen.measureText(`${text.slice(0, count)}…`).width > room) count--;
    return count > 1 ? `${text.slice(0, count).trimEnd()}…` : "";
  }
  function prepare(target) {
    const scale = window.devicePixelRatio || 1, box = target.getBoundingClientRect();
    const wide = target === canvas ? scroll.clientWidth : box.width;
    const high = target === canvas ? viewHeight() : box.height;
    if (target.width !== Math.round(wide * scale) || target.height !== Math.round(high * scale)) {
      target.width = Math.round(wide * scale); target.height = Math.round(high * scale);
      if (target === canvas) target.style.height = `${high}px`;
    }
    const context = target.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, wide, high);
    return [context, wide, high];
  }

  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawDiagram(); drawOverview(); });
  }

  function firstRow(place) { return Math.max(0, lastUpTo(places, place)); }

  function drawDiagram() {
    let high;
    [pen, , high] = prepare(canvas);
    const above = top(), from = Math.max(0, firstRow(above) - 1);
    let to = from;
    while (to < rows.length && places[to] < above + high + 40) to++;
    drawTimes(from, to, above, high);
    drawLifelines(from, to, above, high);
    const back = Math.max(0, from - 400);
    const taken = { label: {}, chip: {} };
    if (selected >= 0 || hovered >= 0) drawBars(above);
    const labels = [];
    for (let row = back; row < to; row++) drawBytes(row, above, row >= from, taken, labels);
    const placed = [];
    const slope = (label) => Math.abs(label[2][3] - label[2][1]);
    labels.sort((one, other) => slope(one) - slope(other)); // a steep one can make way
    for (const label of labels) writeLabel(placed, ...label);
    for (let row = from; row < to; row++) drawChip(row, above, taken);
    if (peers.size > 1) drawPeers();
    canvas.dataset.rows = `${from}-${to}`;
  }

  function drawBars(above) {
    for (const [index, alpha] of [[hovered, 0.05], [selected, 0.12]]) {
      const row = index >= 0 ? placeOf[index] : -1;
      if (row < 0) continue;
      pen.fillStyle = faded(colours.accent, alpha);
      pen.beginPath(); pen.roundRect(4, places[row] - above - 13, width - 8, 26, 7); pen.fill();
    }
  }

  function drawTimes(from, to, above, high) {
    pen.textBaseline = "middle";
    let free = -Infinity, said = "";
    for (let row = from; row < to; row++) {
      const y = places[row] - above, time = steps[rows[row]][2];
      const gap = row ? time - steps[rows[row - 1]][2] : 0;
      if (!byTime && gapHeight(gap)) {
        const middle = (places[row - 1] + places[row]) / 2 - above;
        pen.strokeStyle = colours.line; pen.setLineDash([2, 4]); pen.beginPath();
        pen.moveTo(gutter, middle); pen.lineTo(width - 12, middle); pen.stroke(); pen.setLineDash([]);
        const narrow = width < 560;
        pen.font = `${narrow ? 9 : 11}px ${colours.sans}`; pen.fillStyle = colours.soft; pen.textAlign = narrow ? "left" : "right";
        if (places[row] - places[row - 1] > 40) { pen.fillText(`+${seconds(gap)}`, narrow ? 3 : gutter - 14, middle); }
      }
      if (y < free) continue;
      free = y + 15;
      const words = end > begin ? clock(time - begin) : `${steps[rows[row]][1]}`;
      if (words === said) continue;
      said = words;
      pen.font = `11px ${colours.mono}`; pen.fillStyle = colours.soft; pen.textAlign = "right";
      pen.fillText(words, gutter - 14, y);
    }
    pen.strokeStyle = colours.line; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(gutter - 6.5, 0); pen.lineTo(gutter - 6.5, high); pen.stroke();
  }
  const clock = (value) => {
    const span = end - begin;
    const digits = width < 560 ? (span < 100 ? 2 : span < 1000 ? 1 : 0) : span < 1 ? 6 : span < 100 ? 3 : 2;
    return value.toFixed(digits);
  };

  const HUES = [0.12, 0.3, 0.2, 0.42, 0.26, 0.5, 0.16, 0.36];
  const tones = new Map();
  const toneOf = (state) => { if (!tones.has(state)) tones.set(state, HUES[tones.size % HUES.length]); return tones.get(state); };

  function drawLifelines(from, to, above, high) {
    peerX.forEach((x, index) => {
      pen.strokeStyle = colours.line; pen.lineWidth = 2; pen.setLineDash([4, 4]); pen.beginPath();
      pen.moveTo(x, 0); pen.lineTo(x, high); pen.stroke(); pen.setLineDash([]); pen.lineWidth = 1;
    });
    sides.forEach((_, side) => {
      const x = laneX[side], past = history[side];
      let at = lastUpTo(past.at, rows.length ? rows[from] : 0);
      let y = 0, state = at >= 0 ? past.state[at] : null;
      const band = (until) => {
        if (until <= y) return;
        pen.fillStyle = faded(laneColour(side), state === null ? 0.1 : toneOf(state) + 0.12);
        pen.fillRect(x - 3.5, y, 7, until - y);
      };
      for (at++; at < past.at.length; at++) {
        const row = nearestRow(past.at[at]);
        if (row >= to) break;
        if (past.state[at] === state) continue;
        const next = Math.max(0, places[row] - above);
        band(next); y = next; state = past.state[at];
      }
      const finished = rows.length && to === rows.length ? places[rows.length - 1] - above + 14 : high;
      band(Math.min(high, finished));
    });
  }
  function nearestRow(index) {
    let low = 0, high = rows.length;
    while (low < high) { const mid = (low + high) >> 1; if (rows[mid] < index) low = mid + 1; else high = mid; }
    return Math.min(low, Math.max(0, rows.length - 1));
  }

  function drawPeers() {
    pen.font = `600 11px ${colours.sans}`; pen.textAlign = "center"; pen.textBaseline = "middle";
    peerX.forEach((x, index) => {
      const last = index === peerX.length - 1 && peers.size > peerX.length;
      const words = last ? `${peers.size - index} ${[...peers.keys()][index].startsWith("link ") ? "links" : "peers"}` : [...peers.keys()][index], wide = pen.measureText(words).width + 14;
      pen.fillStyle = colours.raised; pen.strokeStyle = colours.line;
      pen.beginPath(); pen.roundRect(x - wide / 2, 6, wide, 20, 10); pen.fill(); pen.stroke();
      pen.fillStyle = colours.soft; pen.fillText(words, x, 16.5);
    });
  }

  function arrow(x1, y1, x2, y2, colour, strong) {
    pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = strong ? 2.4 : 1.5;
    const angle = Math.atan2(y2 - y1, x2 - x1), tipX = x2 - 5 * Math.cos(angle), tipY = y2 - 5 * Math.sin(angle);
    pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(tipX - 5 * Math.cos(angle), tipY - 5 * Math.sin(angle)); pen.stroke();
    pen.beginPath(); pen.moveTo(tipX, tipY);
    pen.lineTo(tipX - 8 * Math.cos(angle - 0.45), tipY - 8 * Math.sin(angle - 0.45));
    pen.lineTo(tipX - 8 * Math.cos(angle + 0.45), tipY - 8 * Math.sin(angle + 0.45)); pen.closePath(); pen.fill();
    pen.lineWidth = 1;
  }

  function drawBytes(row, above, inView, taken, labels) {
    const index = rows[row], [side, , , kind, label, more] = steps[index];
    if (kind !== "sent" && kind !== "received") return;
    const y = places[row] - above, strong = index === selected || hitSet.has(index);
    const colour = more.fault ? colours.fault : laneColour(side);
    let x1, x2, y2 = y;
    if (sides.length === 1) {
      const peer = peerX[Math.min(peers.get(peersOf(more)[0]) || 0, peerX.length - 1)];
      [x1, x2] = kind === "sent" ? [laneX[0], peer] : [peer, laneX[0]];
      if (!inView) return;
    } else if (kind === "sent") {
      const arrived = more.to !== undefined ? steps[more.to] : null;
      x1 = laneX[side];
      if (arrived) {
        const target = placeOf[more.to];
        x2 = laneX[arrived[0]];
        y2 = target >= 0 ? places[target] - above : y;
      } else {
        x2 = x1 + (side === 0 || side < sides.length - 1 ? 1 : -1) * 70;
        if (sides.length === 2) x2 = (laneX[0] + laneX[1]) / 2;
      }
      if (y2 < -20 && y < -20) return;
    } else {
      if (!inView) return;
      if (more.from === undefined) {
        const other = sides.length === 2 ? (laneX[0] + laneX[1]) / 2 : laneX[side] - 70;
        arrow(other, y, laneX[side], y, faded(colour, 0.6), strong);
        x1 = other; x2 = laneX[side];
      } else {
        pen.fillStyle = faded(laneColour(steps[more.from][0]), 1);
        pen.beginPath(); pen.arc(laneX[side], y, 3.5, 0, 7); pen.fill();
        return;
      }
    }
    if (kind === "sent" || sides.length === 1) arrow(x1 + Math.sign(x2 - x1) * 4, y, x2 - Math.sign(x2 - x1) * 3, y2, colour, strong);
    const key = sides.length === 2 ? "" : `${Math.min(x1, x2)}`;
    if (byTime && y < (taken.label[key] ?? -1e9) + 15) return;
    taken.label[key] = y;
    labels.push([label, more, [x1, y, x2, y2], Math.abs(x2 - x1) - 48, colour, strong]);
  }

  function writeLabel(placed, label, more, [x1, y1, x2, y2], room, colour, strong) {
    const size = (more.bytes || []).reduce((sum, part) => sum + part.size, 0);
    pen.font = `${strong ? 600 : 500} 12px ${colours.sans}`; pen.textAlign = "center"; pen.textBaseline = "middle";
    const note = size && room > 150 ? ` · ${size.toLocaleString("en")} B` : "";
    const words = fit(label || "bytes", Math.max(0, room - note.length * 6.5));
    const whole = words && words + note;
    if (!whole) return;
    const wide = pen.measureText(whole).width + 12;
    // In the middle, or where no other one is: arrows cross.
    const at = (part) => [x1 + (x2 - x1) * part, y1 + (y2 - y1) * part];
    const isFree = ([x, y]) => placed.every((one) => Math.abs(one[1] - y) > 20 || Math.abs(one[0] - x) > (one[2] + wide) / 2);
    const [x, y] = [0.5, 0.36, 0.64].map(at).find((place) => Math.abs(place[0] - (x1 + x2) / 2) <= (room + 24 - wide) / 2 && isFree(place)) || at(0.5);
    placed.push([x, y, wide]);
    pen.fillStyle = colours.panel; pen.globalAlpha = 0.92;
    pen.beginPath(); pen.roundRect(x - wide / 2, y - 9, wide, 18, 6); pen.fill(); pen.globalAlpha = 1;
    pen.fillStyle = colour; pen.fillText(whole, x, y + 0.5);
  }

  function drawChip(row, above, taken) {
    const index = rows[row], [side, , , kind, label, more] = steps[index];
    if (kind === "sent" || kind === "received") { if (more.fault) drawTrouble(side, places[row] - above); return; }
    const y = places[row] - above;
    if (byTime && y < (taken.chip[side] ?? -1e9) + 23) {
      pen.fillStyle = faded(more.fault ? colours.fault : laneColour(side), 0.8);
      pen.beginPath(); pen.arc(laneX[side], y, 2.5, 0, 7); pen.fill();
      return;
    }
    taken.chip[side] = y;
    const left = sides.length === 2 && side === 0;
    const x = laneX[side] + (left ? -14 : 14);
    const room = left ? x - gutter - 6 : (sides.length > 2 ? (width - gutter) / sides.length - 34 : width - x - 12);
    const base = more.fault ? colours.fault : kind === "event" ? laneColour(side) : kind === "effect" || kind === "answer" ? colours.effect : colours.soft;
    pen.font = `${kind === "event" ? 600 : 500} 12px ${colours.sans}`; pen.textBaseline = "middle";
    const sign = { event: "", effect: "→ store  ", answer: "store →  ", call: "", time: "◷ ", deadline: "due " }[kind];
    let words = fit(sign + label, room - 20);
    if (!words) return;
    const state = more.state !== undefined && changes(side, index) ? more.state : "";
    const wide = Math.min(room, pen.measureText(words).width + 20), start = left ? x - wide : x;
    pen.strokeStyle = faded(base, 0.55); pen.beginPath(); pen.moveTo(laneX[side], y); pen.lineTo(x, y); pen.stroke();
    pen.beginPath(); pen.arc(laneX[side], y, 3, 0, 7); pen.fillStyle = base; pen.fill();
    pen.beginPath(); pen.roundRect(start, y - 11, wide, 22, 7);
    pen.fillStyle = colours.panel; pen.fill();
    pen.fillStyle = faded(base, kind === "event" || more.fault ? 0.14 : 0.05); pen.fill();
    pen.strokeStyle = index === selected ? colours.accent : hitSet.has(index) ? colours.hit : faded(base, kind === "event" || more.fault ? 0.35 : 0.22);
    pen.lineWidth = index === selected || hitSet.has(index) ? 2 : 1; pen.stroke(); pen.lineWidth = 1;
    pen.fillStyle = kind === "event" || more.fault ? base : colours.text; pen.textAlign = "left";
    pen.fillText(words, start + 10, y + 0.5);
    if (state && width > 560) drawState(state, side, left, start, wide, y, room);
  }
  function drawTrouble(side, y) {
    pen.fillStyle = colours.fault; pen.beginPath(); pen.arc(laneX[side], y, 5, 0, 7); pen.fill();
  }
  function changes(side, index) {
    const past = history[side], at = lastUpTo(past.at, index);
    return at >= 0 && past.at[at] === index && (at === 0 || past.state[at] !== past.state[at - 1]);
  }
  function drawState(state, side, left, start, wide, y, room) {
    pen.font = `600 10px ${colours.mono}`;
    const size = pen.measureText(state).width + 10;
    if (wide + size + 8 > room) return;
    const x = left ? start - size - 6 : start + wide + 6;
    pen.fillStyle = faded(laneColour(side), 0.9); pen.beginPath(); pen.roundRect(x, y - 8, size, 16, 5); pen.fill();
    pen.fillStyle = colours.panel; pen.textAlign = "left"; pen.fillText(state, x + 5, y + 0.5);
  }

  // ---- Overview: all steps by time, however many there are.

  let density = null;
  function drawOverview() {
    const [context, wide, high] = prepare(overview);
    const pad = 8, span = wide - 2 * pad;
    const xOf = (index) => pad + (end > begin ? (steps[index][2] - begin) / (end - begin) : index / Math.max(1, steps.length - 1)) * span;
    if (!density || density.wide !== Math.floor(span)) {
      density = { wide: Math.floor(span), of: sides.map(() => new Float32Array(Math.floor(span) + 1)) };
      steps.forEach((step, index) => {
        if (step[3] === "time" || step[3] === "deadline") return;
        const size = (step[5].bytes || []).reduce((sum, part) => sum + part.size, 0);
        density.of[step[0]][Math.floor(xOf(index) - pad)] += 1 + Math.log2(1 + size);
      });
    }
    const each = (high - 10) / sides.length;
    density.of.forEach((counts, side) => {
      const most = counts.reduce((one, other) => Math.max(one, other), 1);
      context.fillStyle = faded(laneColour(side), 0.75);
      counts.forEach((count, x) => {
        if (!count) return;
        const size = Math.max(2, (Math.log2(1 + count) / Math.log2(1 + most)) * (each - 3));
        context.fillRect(pad + x, 5 + each * side + (each - size) / 2, 1.5, size);
      });
    });
    context.fillStyle = colours.hit;
    for (const index of hits.slice(0, 5000)) context.fillRect(xOf(index) - 1, high - 5, 2, 4);
    context.fillStyle = colours.fault;
    for (const index of faultRows.slice(0, 5000)) { context.fillRect(xOf(index) - 1, 2, 2, high - 4); }
    if (!rows.length) return;
    const first = firstRow(top()), last = Math.max(first, firstRow(top() + viewHeight()));
    const x1 = xOf(rows[first]) - 3, x2 = Math.max(x1 + 8, xOf(rows[last]) + 3);
    context.fillStyle = faded(colours.accent, 0.1); context.strokeStyle = faded(colours.accent, 0.85); context.lineWidth = 1.5;
    context.beginPath(); context.roundRect(x1, 2, x2 - x1, high - 4, 5); context.fill(); context.stroke();
  }
  function goByOverview(event) {
    const box = overview.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left - 8) / (box.width - 16)));
    let low = 0, high = rows.length;
    if (end > begin) {
      const time = begin + part * (end - begin);
      while (low < high) { const mid = (low + high) >> 1; if (steps[rows[mid]][2] < time) low = mid + 1; else high = mid; }
    } else low = Math.round(part * (rows.length - 1));
    const row = Math.min(low, rows.length - 1);
    if (row >= 0) scrollToPlace(places[row] - viewHeight() / 2);
  }

  // ---- States and deadlines at the selected step, or at the top of what is seen.

  const cards = sides.map((side, index) => {
    const card = make("div", "lane");
    card.style.setProperty("--lane", `var(--lane-${index % 4})`);
    const state = make("span", "state"), due = make("span", "deadline");
    card.append(make("b", "", side.name), state, due);
    card.title = `${side.machine} · session ${side.session || "-"} · ${side.steps} steps`;
    $("lanes").append(card);
    return { state, due };
  });
  function tellStates() {
    const at = selected >= 0 ? selected : rows.length ? rows[firstRow(top())] : 0;
    sides.forEach((_, side) => {
      const past = history[side], found = lastUpTo(past.at, at);
      const state = found >= 0 ? past.state[found] : null, due = found >= 0 ? past.due[found] : null;
      cards[side].state.textContent = state ?? "before its first event";
      const known = lastUpTo(told[side].at, at), now = known >= 0 ? told[side].now[known] : null;
      cards[side].due.textContent = due === null ? "no deadline" : now === null ? `deadline ${due}` : due <= now ? "deadline is due" : `deadline in ${seconds(due - now)}`;
    });
  }

  // ---- The selected step.

  function select(index, reveal) {
    selected = index;
    if (placeOf[index] < 0) { shown[groupOf(steps[index][3])] = true; tellKinds(); arrange(); }
    showStep();
    if (reveal) {
      const place = places[placeOf[index]], above = top();
      if (place < above + 30 || place > above + viewHeight() - 40) scrollToPlace(place - viewHeight() / 2);
    }
    tellStates(); redraw();
    $("detail").scrollTop = 0;
  }

  function showStep() {
    const host = $("step"); host.replaceChildren();
    if (selected < 0) { host.append(help()); return; }
    const [side, number, time, kind, label, more] = steps[selected];
    host.style.setProperty("--lane", more.fault ? "var(--fault)" : kind === "effect" || kind === "answer" ? "var(--effect)" : `var(--lane-${side % 4})`);
    host.append(make("div", "kind", kind), make("h2", "", label || "bytes"));
    const when = end > begin ? ` · ${seconds(time - begin)} after the first` : "";
    const wall = sides[side].began !== null ? ` · ${new Date(time * 1000).toISOString().replace("T", " ").replace("Z", " UTC")}` : "";
    host.append(make("p", "when", `Step ${number} of ${sides[side].name}${when}${wall}${more.state !== undefined ? ` · ${more.state}` : ""}`));
    if (more.fault) host.append(make("div", "trouble", more.fault));
    for (const [name, words] of [["to", "arrives at"], ["from", "was sent by"]]) {
      if (more[name] === undefined) continue;
      const other = steps[more[name]], line = make("p", "goes");
      const button = make("button", "", `step ${other[1]} of ${sides[other[0]].name}`);
      button.onclick = () => select(more[name], true);
      line.append(`${words[0].toUpperCase()}${words.slice(1)} `, button, end > begin ? `, ${seconds(Math.abs(other[2] - time))} ${name === "to" ? "later" : "earlier"}` : "");
      host.append(line);
    }
    if (more.call) for (const part of ["arguments", "keywords", "result", "error"]) {
      if (more.call[part] === undefined) continue;
      const title = part === "result" && kind === "event" ? "event" : part === "result" && kind === "effect" ? "effect" : part;
      host.append(make("h3", "", title), valueOf(more.call[part]));
    }
    for (const part of more.bytes || []) host.append(...bytesOf(part));
  }

  function help() {
    const made = make("div", "empty");
    made.append(make("h2", "", "Select a step"));
    const list = make("ul");
    for (const [keys, words] of [["↑ ↓", "from step to step"], ["/", "search"], ["F", "first fault"], ["+ −", "zoom"], ["T", "by step, or by time"]]) {
      const line = make("li"); for (const key of keys.split(" ")) line.append(make("kbd", "", key), " "); line.append(words); list.append(line);
    }
    made.append(list);
    return made;
  }

  function valueOf(value) {
    const made = make("div", "value"); made.append(node(value, 0)); return made;
  }
  function node(value, depth) {
    if (value === null || typeof value !== "object") return make("span", "", typeof value === "string" ? JSON.stringify(value) : String(value));
    if (Array.isArray(value)) return list(value.map((each, index) => [`${index}`, each]), "", depth);
    if (typeof value.hex === "string" && Object.keys(value).every((key) => key === "hex" || key === "size")) {
      const size = value.size ?? value.hex.length / 2;
      return make("span", "raw", size > 64 ? `${value.hex.slice(0, 128)}… (${size} bytes)` : value.hex || "no bytes");
    }
    const mark = value[""];
    if (typeof mark !== "string") return list(Object.entries(value), "", depth);
    if (mark === "tuple" || mark === "set") return node(value.items ?? null, depth);
    if (mark === "dict" && Array.isArray(value.pairs)) return list(value.pairs.map((pair) => Array.isArray(pair) ? [typeof pair[0] === "string" ? pair[0] : JSON.stringify(pair[0]), pair[1] ?? null] : ["…", pair]), "", depth);
    if (mark === "object") return make("span", "class", `#${value.number}`);
    if (mark === "secret" || mark === "payload" || mark === "opaque") return make("span", "out", `${value.type}${value.size ? ` of ${value.size}` : ""}, left out`);
    const name = mark.split(":").pop();
    if (value.member !== undefined) return make("span", "class", value.member);
    if (value.constant !== undefined) return make("span", "class", value.constant);
    const parts = value.fields || value.slots || Object.fromEntries(Object.entries(value).filter(([key]) => key));
    return list(Object.entries(parts), name, depth);
  }
  function list(pairs, name, depth) {
    const made = make("div");
    if (name) made.append(make("span", "class", name));
    if (!pairs.length && !name) return make("span", "out", "empty");
    if (depth > 12) return make("span", "out", "…");
    const items = make("dl");
    for (const [key, each] of pairs.slice(0, 500)) { const held = make("dd"); held.append(node(each, depth + 1)); items.append(make("dt", "", key), held); }
    if (pairs.length) made.append(items);
    return made;
  }

  const HEX_MAX = 2048;
  function bytesOf(part) {
    const data = decoded(part.data), leaves = [], made = [];
    const title = make("h3", "", part.peer === undefined ? "Bytes" : `Datagram, ${part.peer}`);
    title.append(make("span", "", `${part.size.toLocaleString("en")} bytes`));
    const hex = make("div", "hex"), tree = make("div", "fields");
    const collect = (fields, parents) => fields.forEach((field) => { if (field[4].length) collect(field[4], [...parents, field]); else leaves.push([field, parents]); });
    collect(part.fields, []);
    const line = document.documentElement.clientWidth < 480 ? 8 : 16;
    let leaf = 0, tone = -1, lastTop = null;
    const tones = leaves.map(([field, parents]) => { const first = parents[0] || field; if (first !== lastTop) { tone++; lastTop = first; } return tone % 2; });
    const limit = Math.min(data.length, HEX_MAX);
    for (let start = 0; start < limit; start += line) {
      const run = make("div", "run");
      for (let at = start; at < Math.min(limit, start + line); ) {
        while (leaf < leaves.length - 1 && at >= leaves[leaf][0][1] + leaves[leaf][0][2]) leaf++;
        const field = leaves[leaf] && leaves[leaf][0];
        const until = Math.min(limit, start + line, field ? field[1] + field[2] : start + line);
        const words = [...data.subarray(at, Math.max(at + 1, until))].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
        const span = make("span", `tone-${tones[leaf] || 0}${field && field[0] === "unread" ? " unread" : ""}${field && field[0] === "" ? " syntax" : ""}`, words);
        span.dataset.leaf = leaf; span.title = field ? `${[...leaves[leaf][1].map((each) => each[0]), field[0]].filter(Boolean).join(" › ")}${field[3] === null ? "" : ` = ${field[3]}`}` : "";
        run.append(span, at + (until - at) < start + line ? " " : "");
        at = Math.max(at + 1, until);
      }
      hex.append(make("div", "at", start.toString(16).padStart(4, "0")), run);
    }
    const marked = new Map();
    const pick = (from, to, box) => {
      for (const each of [...hex.querySelectorAll(".on"), ...tree.querySelectorAll(".on")]) each.classList.remove("on");
      for (let number = from; number <= to; number++) for (const each of hex.querySelectorAll(`[data-leaf="${number}"]`)) each.classList.add("on");
      if (box) { box.classList.add("on"); box.scrollIntoView({ block: "nearest" }); }
    };
    let count = 0, number = -1;
    const branch = (fields, host, first) => fields.forEach((field) => {
      const leafNumber = field[4].length ? number + 1 : ++number;
      if (!field[0] || count > 3000) { if (field[4].length) branch(field[4], host); return; }
      count++;
      const box = make("div", field[0] === "unread" ? "bad" : ""), row = make("div", "row");
      row.append(make("b", "", field[0] + (field[5] ? " …" : "")), make("span", "", field[3] ?? ""), make("i", "", `${field[1]} +${field[2]}`));
      row.title = field[3] ?? "";
      box.append(row); host.append(box);
      if (field[4].length) {
        const inside = make("div", "in"), fold = make("button", "fold", "▾"); box.append(inside); branch(field[4], inside);
        const last = number;
        fold.setAttribute("aria-label", "Fold");
        fold.onclick = (event) => { event.stopPropagation(); box.classList.toggle("shut"); };
        row.prepend(fold);
        row.onclick = () => pick(leafNumber, last, box);
      } else { marked.set(leafNumber, box); row.onclick = () => pick(leafNumber, leafNumber, box); }
    });
    branch(part.fields, tree);
    hex.onclick = (event) => { const found = event.target.closest("[data-leaf]"); if (found) { const leaf = Number(found.dataset.leaf); pick(leaf, leaf, marked.get(leaf)); } };
    made.push(title, hex);
    if (part.size > limit) made.push(make("p", "when", `The first ${limit.toLocaleString("en")} bytes.`));
    if (part.fault) made.push(make("div", part.fault[1] === "TRUNCATED" ? "when" : "trouble", part.fault[1] === "TRUNCATED" ? "More bytes belong to the last field." : `${part.fault[1]} at byte ${part.fault[0]}: ${part.fault[2]}`));
    made.push(tree);
    return made;
  }

  // ---- Search.

  let texts = null;
  function textOf([side, number, , kind, label, more]) {
    const words = [sides[side].name, number, kind, label, more.state ?? "", more.fault ?? ""];
    if (more.call) words.push(JSON.stringify(more.call));
    const collect = (fields) => fields.forEach((field) => { words.push(field[0], field[3] ?? ""); collect(field[4]); });
    for (const part of more.bytes || []) collect(part.fields);
    return words.join("\n").toLowerCase();
  }
  let hitAt = -1;
  function search() {
    const wanted = $("search").value.trim().toLowerCase();
    hits = []; hitAt = -1;
    if (wanted) {
      texts ??= steps.map(textOf);
      texts.forEach((text, index) => { if (text.includes(wanted)) hits.push(index); });
    }
    hitSet = new Set(hits);
    tellFound(); redraw();
  }
  function tellFound() { $("found").textContent = $("search").value.trim() ? `${hits.length ? hitAt + 1 : 0} / ${hits.length.toLocaleString("en")}` : ""; }
  function goToHit(by) {
    if (!hits.length) return;
    if (hitAt < 0 && selected >= 0) { const last = lastUpTo(hits, selected); hitAt = by > 0 ? (last + 1) % hits.length : (last + hits.length) % hits.length; }
    else hitAt = (hitAt + by + hits.length) % hits.length;
    select(hits[hitAt], true); tellFound();
  }

  // ---- Controls.

  const counts = {};
  steps.forEach((step) => { const group = groupOf(step[3]); counts[group] = (counts[group] || 0) + 1; });
  const buttons = {};
  for (const [kind, title] of Object.entries(TITLES)) {
    if (!counts[kind]) continue;
    const button = make("button", "", title); button.append(make("i", "", counts[kind].toLocaleString("en")));
    button.onclick = () => { shown[kind] = !shown[kind]; tellKinds(); keepPlace(); };
    buttons[kind] = button; $("kinds").append(button);
  }
  function tellKinds() { for (const [kind, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", shown[kind]); }
  function keepPlace(change = () => {}) {
    const at = selected >= 0 ? selected : rows.length ? rows[firstRow(top() + viewHeight() / 2)] : 0;
    change(); arrange();
    const row = placeOf[at] >= 0 ? placeOf[at] : nearestRow(at);
    if (rows.length) scrollToPlace(places[row] - viewHeight() / 2);
    redraw();
  }
  function setScale(time) {
    keepPlace(() => { byTime = time; });
    $("by-step").setAttribute("aria-pressed", !time); $("by-time").setAttribute("aria-pressed", time);
  }
  const zoomBy = (factor) => keepPlace(() => { zoom = Math.min(1e6, Math.max(1e-3, zoom * factor)); });
  $("by-step").onclick = () => setScale(false);
  $("by-time").onclick = () => setScale(true);
  $("closer").onclick = () => zoomBy(1.5);
  $("wider").onclick = () => zoomBy(1 / 1.5);
  $("search").oninput = search;
  $("search").onkeydown = (event) => { if (event.key === "Enter") goToHit(event.shiftKey ? -1 : 1); if (event.key === "Escape") { event.target.value = ""; search(); scroll.focus(); } };
  $("next").onclick = () => goToHit(1);
  $("previous").onclick = () => goToHit(-1);
  $("fault").onclick = () => { if (faultRows.length) select(faultRows[0], true); };
  if (faultRows.length) { $("fault").classList.add("some"); $("faults").textContent = faultRows.length === 1 ? "1 fault" : `${faultRows.length.toLocaleString("en")} faults`; }

  function rowAt(event) {
    const place = event.clientY - canvas.getBoundingClientRect().top + top();
    const row = firstRow(place), next = Math.min(row + 1, rows.length - 1);
    return rows.length ? (Math.abs(places[next] - place) < Math.abs(places[row] - place) ? next : row) : -1;
  }
  function hit(event) {
    const near = rowAt(event);
    if (near < 0) return -1;
    if (sides.length === 1 || !byTime) return rows[near];
    return rows[near];
  }
  canvas.onclick = (event) => { const index = hit(event); if (index >= 0) { select(index, false); scroll.focus({ preventScroll: true }); } };
  canvas.onmousemove = (event) => { const index = hit(event); if (index !== hovered) { hovered = index; redraw(); } };
  canvas.onmouseleave = () => { hovered = -1; redraw(); };
  scroll.onscroll = () => { if (selected < 0) tellStates(); redraw(); };
  scroll.addEventListener("wheel", (event) => { if (event.ctrlKey) { event.preventDefault(); zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2); } }, { passive: false });
  let dragging = false;
  overview.onpointerdown = (event) => { dragging = true; overview.setPointerCapture(event.pointerId); goByOverview(event); };
  overview.onpointermove = (event) => { if (dragging) goByOverview(event); };
  overview.onpointerup = () => { dragging = false; };
  document.onkeydown = (event) => {
    if (event.target.tagName === "INPUT" || event.metaKey || event.ctrlKey || event.altKey) return;
    const row = selected >= 0 ? placeOf[selected] : -1;
    const go = (to) => { if (rows.length) { event.preventDefault(); select(rows[Math.min(rows.length - 1, Math.max(0, to))], true); } };
    switch (event.key) {
      case "ArrowDown": case "j": go(row + 1); break;
      case "ArrowUp": case "k": go(row < 0 ? 0 : row - 1); break;
      case "Home": go(0); break;
      case "End": go(rows.length - 1); break;
      case "PageDown": go(row + 20); break;
      case "PageUp": go(row - 20); break;
      case "/": event.preventDefault(); $("search").focus(); break;
      case "f": $("fault").click(); break;
      case "t": setScale(!byTime); break;
      case "+": zoomBy(1.5); break;
      case "-": zoomBy(1 / 1.5); break;
      case "n": goToHit(event.shiftKey ? -1 : 1); break;
      default:
    }
  };

  $("about").textContent = [
    sides.map((side) => side.session && `session ${side.session}`).filter(Boolean).join(", "),
    `${sides.reduce((sum, side) => sum + side.steps, 0).toLocaleString("en")} steps`,
    part[1] < part[2] ? `shown are ${part[0].toLocaleString("en")} to ${(part[0] + part[1] - 1).toLocaleString("en")} of ${part[2].toLocaleString("en")} that did something` : "",
    end > begin ? seconds(end - begin) : "",
    `culm ${[...new Set(sides.map((side) => side.culm))].join(", ")}`,
    sides.some((side) => side.redacted.length) ? `left out: ${[...new Set(sides.flatMap((side) => side.redacted))].join(", ")}` : "",
    sides.some((side) => side.torn) ? "torn at its end" : "",
  ].filter(Boolean).join(" · ");

  const resized = () => { layout(); density = null; widths.clear(); redraw(); };
  new ResizeObserver(resized).observe(scroll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
  readColours(); tellKinds(); layout(); arrange(); showStep(); tellStates(); redraw();
  document.documentElement.dataset.ready = "true";
})();
