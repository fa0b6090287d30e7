// The pictures of a moment: the ring of nodes, their logs, space and time, and all steps at a glance. Known shapes are changed in place.
import { svg, keyed, text, set } from "./dom.js";
import { pending, journey } from "./sim_fold.js";
import { say, short, nameOf, hue, kindOf, lookOf, weatherOf, LOOKS } from "./sim_words.js";

const MARKS = { commit: "✓", truncate: "✂", append: "+", boot: "↑", install: "▤", note: "✕", durable: "▪" };
const middle = { "text-anchor": "middle" }, arrow = { "marker-end": "url(#sim-head)" }, plain = { "marker-end": null };
export const known = (value) => (value === -1 || value === undefined ? "none" : Array.isArray(value) ? value.join(" ") || "none" : String(value));
export const about = (run, at, flight) => `${nameOf(run, flight.from, at)} to ${nameOf(run, flight.to, at)}: ${flight.step.text}; ${journey(run, flight)}`;

// Draw shapes: [key, tag, attributes, words of a text, title].
function paint(parent, shapes) {
  keyed(parent, shapes.filter(Boolean), ([key]) => key, ([, tag]) => svg(tag), (node, [, , attributes, words, title]) => {
    set(node, attributes);
    if (words !== undefined) text(node, words);
    if (title) text(node.titled ??= node.appendChild(svg("title")), title);
  });
}

// A drawing as wide as its place, whose height is that of `tall(width)`.
function picture(name, label, tall, ...layers) {
  const node = svg("svg", { class: name, role: "group", "aria-label": label }, layers);
  const fit = (...more) => {
    const box = getComputedStyle(node.parentNode), width = Math.max(240, node.parentNode.clientWidth - 2 * parseFloat(box.paddingLeft)), height = tall(width, ...more);
    set(node, { width, height, viewBox: `0 0 ${width} ${height}` });
    return [width, height];
  };
  return [node, fit];
}

export function overview() {
  const [node, fit] = picture("overview", "Leaders, elections, faults and truncations along the steps", () => 34);
  function draw(run, at) {
    const [width] = fit(), last = Math.max(1, run.steps.length - 1), x = (step) => 8 + (step / last) * (width - 16);
    const reigns = run.reigns.map(({ from, to, epoch, leader }) => [`b${from}`, "rect", { x: x(from), y: 12, width: Math.max(1, x(to) - x(from)), height: 10, fill: hue(epoch), opacity: leader < 0 ? 0.25 : 0.9 }, undefined, leader < 0 ? `no leader after epoch ${epoch}` : `node ${leader} leads epoch ${epoch}`]);
    const marks = run.marks.map(({ step, kind, glyph, words }) => (glyph ? [step, "text", { class: kind, x: x(step), y: kind === "cut" ? 33 : 10, ...middle }, glyph] : [step, "rect", { class: kind, x: x(step) - 1, y: 24, width: 2, height: 8 }, undefined, words]));
    paint(node, [...reigns, ...marks, ["now", "line", { class: "now", x1: x(at), x2: x(at), y1: 0, y2: 34 }]]);
  }
  return { node, draw };
}

// The ring: nodes by state, links that are cut or held, and messages under way. `tell` gets what the pointer or the focus is on.
export function ring(tell) {
  const head = svg("defs", null, svg("marker", { id: "sim-head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", markerUnits: "userSpaceOnUse" }, svg("path", { d: "M0 0L8 4L0 8Z", fill: "context-stroke" })));
  const links = svg("g"), dots = svg("g"), nodes = svg("g"), moved = (each, [x, y]) => { each.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`; };
  const [node, fit] = picture("sim-ring", "Nodes and messages under way", (width) => Math.round(Math.max(350, Math.min(width * 0.72, 500))), head, links, dots, nodes);
  for (const kind of ["mouseover", "focusin"]) node.addEventListener(kind, ({ target }) => tell(target.closest("[aria-label]:not(.sim-ring)")?.getAttribute("aria-label") ?? "\u00a0"));

  const makeDot = ({ flight }) => svg("g", { class: `dot-of ${kindOf(flight.step)}`, tabindex: 0, role: "img" }, svg("circle", flight.step.event === "send" ? { r: 5 } : { r: 4.5, class: "answer" }), svg("text", { x: 8 }));
  const makeNode = (round, voters) => ({ id }) => svg("g", { tabindex: 0, role: "button", "data-node": id }, svg("circle", { r: round + 7 }),
    id < voters ? svg("circle", { class: "body", r: round }) : svg("rect", { class: "body", x: -round, y: -round, width: 2 * round, height: 2 * round, rx: 9 }),
    svg("text", { class: "glyph", y: -3 }), svg("text", { class: "id", y: 15 }), svg("text", { class: "word" }), svg("text", { class: "small" }), svg("text"));

  function draw(run, at, only) {
    const step = run.steps[at], { nodes: all, weather } = run.moments[at], [width, height] = fit(), round = 26, under = pending(run, at), mine = run.bySend.get(step.sent_in ?? at);
    const spot = all.map((_, place) => { const turn = (place / all.length - 0.25) * 2 * Math.PI; return [width / 2 + Math.min(width / 2 - 64, 280) * Math.cos(turn), height / 2 + (height / 2 - 82) * Math.sin(turn)]; });
    const along = (from, to, aside) => (part) => {
      const [x1, y1] = spot[from], [x2, y2] = spot[to], long = Math.hypot(x2 - x1, y2 - y1) || 1, [dx, dy] = [(x2 - x1) / long, (y2 - y1) / long], gone = round + 4 + part * (long - 2 * round - 8);
      return [x1 + dx * gone - dy * aside, y1 + dy * gone + dx * aside];
    };
    const line = (key, from, to, aside, attributes) => { const [[x1, y1], [x2, y2]] = [0, 1].map(along(from, to, aside)); return [key, "line", { x1, y1, x2, y2, ...attributes }]; };
    const shapes = [];
    for (const [kind, glyph] of [["cut", "✂"], ["held", "‖"]]) for (const [from, to] of weather[kind]) {
      const isBoth = weather[kind].some(([a, b]) => a === to && b === from);
      if (from === to || !spot[from] || !spot[to] || (isBoth && from > to)) continue;
      const aside = isBoth ? 0 : 5, [x, y] = along(from, to, aside)(isBoth ? 0.5 : 0.66);
      shapes.push(line(`${kind}${from}-${to}`, from, to, aside, { class: kind, ...(isBoth ? plain : arrow) }), [`${kind}${from}-${to}g`, "text", { class: `${kind}-glyph`, x, y: y + 5, ...middle }, glyph]);
    }
    const isShown = mine && mine.to >= 0 && mine.to !== mine.from;
    if (isShown) shapes.push(line("mine", mine.from, mine.to, 5, { class: `mine ${kindOf(mine.step)}`, ...arrow }));
    paint(links, shapes);
    const flying = isShown && step.sent_in !== undefined ? [...under, { flight: mine, number: mine.arrivals.indexOf(at), part: 1 }] : under;
    keyed(dots, flying, ({ flight, number }) => `${flight.at}.${number}`, makeDot, (each, { flight, part, number }) => {
      moved(each, along(flight.from, flight.to, 5)(part));
      set(each, { "aria-label": about(run, at, flight), "data-fate": flight.fate, "data-again": number > 0 });
      text(set(each.lastChild, { y: flight.at % 2 ? 15 : -6 }), (flight.fate === "lost" ? "✕ " : "") + (flying.length <= 10 || flight === mine ? short(flight.step) + (number ? " again" : "") : ""));
    });
    keyed(nodes, all, ({ id }) => id, makeNode(round, run.seed.options.voters), (each, of) => {
      const look = lookOf(of, weather), [halo, body, ...texts] = each.children, first = spot[of.id][1] > height / 2 + 1 ? round + 19 : -round - 38;
      const trouble = [weather.paused.includes(of.id) && "stands still", weather.disks[of.id] && `disk ${weather.disks[of.id]}`].filter(Boolean).join(", ");
      moved(each, spot[of.id]);
      set(each, { class: `node ${look}${only === of.id ? " only" : ""}`, "aria-pressed": String(only === of.id) });
      set(halo, { class: step.node === of.id || step.hit?.includes(of.id) ? "halo now" : "halo" });
      set(body, { stroke: hue(of.epoch) });
      [LOOKS[look][0], ` ${of.id}`, ` ${look}`, ` epoch ${of.epoch}${of.voted >= 0 ? ` · vote ${of.voted}` : ""}`, trouble ? ` ${trouble}` : ` log ${of.end} · hw ${known(of.hw)}`].forEach((words, place) => text(texts[place], words));
      texts.slice(2).forEach((each, row) => set(each, { y: first + row * 14 }));
      set(texts[4], { class: trouble ? "small trouble" : "small" });
    });
    return { under, inForce: weatherOf(weather) };
  }
  return { node, draw };
}

export function logs() {
  const [node, fit] = picture("sim-logs", "Logs of the nodes", (_, total) => 22 + 40 * total);

  // The boxes of one node's log, those that end at `from` or before left out.
  function entries(of, leader, ofLeader, from, to, x, y) {
    const shapes = [];
    let hasDiffered = false;
    for (const each of of.log.filter((box) => box.end > from && box.from < to)) {
      const start = x(Math.max(each.from, of.start)), wide = Math.max(2, x(each.end) - start - 2), key = `${of.id}.${each.from}.${each.end}.${each.crc}`;
      const [kind, words] = each.end <= of.hw ? ["held", "known to be committed"] : each.end > of.durable ? ["loose", "not on disk yet"] : ["ahead", "on disk"];
      const differs = leader && leader !== of && each.end > leader.start && ofLeader.get(each.end) !== each.crc;
      shapes.push([key, "rect", { class: `entry ${kind}`, x: start, y: y + 6, width: wide, height: 22, rx: 4, fill: hue(each.epoch), stroke: hue(each.epoch) }, undefined,
        `offsets ${each.from} to ${each.end - 1}, epoch ${each.epoch}: ${words}${each.voters ? `; voters ${each.voters.join(", ")}` : ""}${differs ? "; the newest leader has other records here, or none" : ""}`]);
      if (wide > 11) shapes.push([`${key}t`, "text", { class: kind === "held" ? "inside" : "outside", x: start + wide / 2, y: y + 21, ...middle }, each.voters && wide > 60 ? `${each.epoch} voters` : each.epoch]);
      if (differs) shapes.push([`${key}d`, "path", { class: "differs", d: `M${start} ${y + 32}h${wide}` }], hasDiffered ? null : [`${key}n`, "text", { class: "differs-glyph", x: start + wide / 2, y: y + 6, ...middle }, "≠"]);
      hasDiffered = differs;
    }
    return shapes;
  }

  function draw(run, at) {
    const { nodes: all, weather, truth } = run.moments[at], [width] = fit(all.length), isNarrow = width < 500, left = isNarrow ? 66 : 146, cell = isNarrow ? 14 : 22, columns = Math.floor((width - left - 10) / cell);
    // The window ends at the longest log, unless the end of the newest leader's log would be out of sight.
    const leader = all[truth.leader], end = Math.max(...all.map((each) => each.end)), from = Math.max(0, Math.min(end - columns + 1, (leader?.end ?? end) - Math.floor(columns / 2))), to = from + columns;
    const x = (offset) => left + (Math.max(from, Math.min(to, offset)) - from) * cell, ofLeader = leader && new Map(leader.log.map((each) => [each.end, each.crc])), shapes = [];
    for (let offset = Math.ceil(from / 5) * 5; offset < to; offset += 5) shapes.push([`o${offset}`, "text", { x: x(offset) + 1, y: 12 }, offset]);
    for (const of of all) {
      const y = 22 + 40 * of.id, look = lookOf(of, weather), hidden = x(of.start) - left, reached = leader?.state === "leader" ? leader.reached[of.id] : null;
      shapes.push([`n${of.id}`, "text", { class: "label-of", x: 0, y: y + 20 }, `${LOOKS[look][0]} ${of.id}${isNarrow ? "" : ` ${look},`} e${of.epoch}`], [`l${of.id}`, "line", { class: "base", x1: left, x2: width - 4, y1: y + 29, y2: y + 29 }],
        hidden > 0 ? [`s${of.id}`, "rect", { class: "snapshot", x: left, y: y + 6, width: hidden - 2, height: 22, rx: 4 }, undefined, `a snapshot replaces everything before offset ${of.start}`] : null,
        hidden > 24 ? [`st${of.id}`, "text", { x: left + 6, y: y + 21 }, hidden > 110 ? `snapshot to ${of.start}` : "▤"] : null, ...entries(of, leader, ofLeader, from, to, x, y),
        of.end > to ? [`m${of.id}`, "text", { class: "label-of", x: width - 12, y: y + 20 }, "…"] : null, of.hw >= from && of.hw <= to ? [`h${of.id}`, "text", { class: "hw", x: x(of.hw) - 1, y: y + 7, ...middle }, "▾"] : null, reached && reached.offset >= from && reached.offset <= to ? [`r${of.id}`, "text", { class: "reached", x: x(reached.offset) - 1, y: y + 38, ...middle }, "▵"] : null);
    }
    paint(node, shapes);
    set(node, { "aria-label": all.map((each) => `${nameOf(run, each.id, at)}: log to ${each.end}, on disk to ${each.durable}, committed to ${known(each.hw)}`).join("; ") });
  }
  return { node, draw };
}

// Space and time: a lane for each node, and a column for each step of a window around `at`.
export function space(go) {
  const [node, fit] = picture("sim-space", "Messages and events around the step", (_, total) => 46 + 52 * total);
  node.addEventListener("click", ({ target }) => { const step = target.closest("[data-step]")?.dataset.step; if (step) go(Number(step)); });

  function lanes(run, at, { first, last, x, y, cell }, label) {
    const shapes = [], lookAt = (id, step) => lookOf(run.moments[step].nodes[id], run.moments[step].weather), epochAt = (id, step) => run.moments[step].nodes[id].epoch;
    for (const { id } of run.moments[at].nodes) {
      shapes.push([`n${id}`, "text", { class: "label-of", x: 0, y: y(id) + 4 }, label(id)]);
      for (let step = first; step <= last;) {
        const look = lookAt(id, step), epoch = epochAt(id, step), began = step, key = began === first ? "first" : began, start = x(began) - cell / 2;
        while (step <= last && lookAt(id, step) === look && epochAt(id, step) === epoch) step++;
        shapes.push([`a${id}.${key}`, "line", { class: `lane-of ${look}`, x1: start, x2: x(step - 1) + cell / 2, y1: y(id), y2: y(id), stroke: look === "down" ? "var(--faint)" : hue(epoch) }],
          step - began > 3 ? [`e${id}.${key}`, "text", { class: "epoch-of", x: start + 3, y: y(id) - 10 }, `${LOOKS[look][0]} e${epoch}`] : null);
      }
    }
    return shapes;
  }

  function arrows(run, at, { first, last, x, y, cell }) {
    const shapes = [], mine = run.bySend.get(run.steps[at].sent_in ?? at);
    for (const flight of run.flights) {
      if (flight.at > last) break;
      if (flight.to < 0 || flight.to === flight.from || (flight.arrivals.at(-1) ?? flight.at) < first) continue;
      const kind = `arrow ${flight.fate} ${kindOf(flight.step)}${flight === mine ? " mine" : ""}`, [x1, y1, x2, y2] = [x(flight.at), y(flight.from), x(flight.at) + cell, y(flight.from) + Math.sign(flight.to - flight.from) * 20];
      if (!flight.arrivals.length) shapes.push([`m${flight.at}`, "line", { class: kind, x1, y1, x2, y2 }], flight.fate === "open" ? null : [`x${flight.at}`, "text", { class: "lost-glyph", x: x2, y: y2 + 4, ...middle }, "✕"]);
      flight.arrivals.forEach((arrival, number) => {
        if (arrival < first) return;
        const heightAt = (step) => y1 + ((step - flight.at) / (arrival - flight.at)) * (y(flight.to) - y1), from = Math.max(flight.at, first - 1), to = Math.min(arrival, last + 1);
        shapes.push([`m${flight.at}.${number}`, "line", { class: `${kind}${number ? " again" : ""}`, x1: x(from), y1: heightAt(from), x2: x(to), y2: heightAt(to), ...(arrival <= last ? arrow : plain) }]);
      });
    }
    return shapes;
  }

  function events(run, { first, last, x, y, cell, height }, concerns) {
    const shapes = [];
    let free = 0;
    for (let step = first; step <= last; step++) {
      const each = run.steps[step], glyph = each.event === "state" ? LOOKS[run.moments[step].nodes[each.node].state][0] : MARKS[each.event];
      if (each.event === "strike") {
        shapes.push([`f${step}`, "line", { class: "strike", x1: x(step), x2: x(step), y1: 16, y2: height - 18 }]);
        if (x(step) > free) { shapes.push([`ft${step}`, "text", { class: "strike-of", x: x(step), y: 11 }, each.fault]); free = x(step) + each.fault.length * 7; }
      } else if (each.node >= 0) shapes.push(glyph ? [`g${step}`, "text", { class: `mark-of ${each.event}`, x: x(step), y: y(each.node) + 5, ...middle }, glyph] : [`g${step}`, "circle", { class: "point", cx: x(step), cy: y(each.node), r: 2.5 }]);
      if ((step - first) % Math.ceil(96 / cell) === 0) shapes.push([`t${step - first}`, "text", { x: x(step) - cell / 2, y: height - 3 }, `${(each.time_us / 1e6).toFixed(4)} s`]);
      shapes.push([`c${step - first}`, "rect", { class: "hit", "data-step": step, x: x(step) - cell / 2, y: 14, width: cell, height: height - 32, "data-dim": !concerns(each) }, undefined, say(run, step).sentence]);
    }
    return shapes;
  }

  function draw(run, at, concerns) {
    const total = run.moments[at].nodes.length, [width, height] = fit(total), isNarrow = width < 500, left = isNarrow ? 34 : 100, cell = isNarrow ? 15 : 18, columns = Math.floor((width - left - 10) / cell);
    const first = Math.max(0, Math.min(at - Math.floor(columns * 0.6), run.steps.length - columns)), last = Math.min(run.steps.length - 1, first + columns - 1);
    const place = { first, last, cell, height, x: (step) => left + (step - first + 0.5) * cell, y: (id) => 40 + 52 * id };
    paint(node, [["now", "rect", { class: "column", x: place.x(at) - cell / 2, y: 14, width: cell, height: height - 32 }], ...lanes(run, at, place, (id) => (isNarrow ? id : nameOf(run, id, at))), ...arrows(run, at, place), ...events(run, place, concerns)]);
  }
  return { node, draw };
}
