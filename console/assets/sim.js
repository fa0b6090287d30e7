// A seed of the simulator, step by step, forwards and backwards: who knows what, which messages are under way, what the logs hold.
import { h, svg, keyed, text, set, fact, count, link } from "./dom.js";
import { fold, pending, isOfInterest, journey } from "./sim_fold.js";
import { say, short, nameOf, hue, kindOf, LOOKS, lookOf, weatherOf } from "./sim_words.js";

const STORIES = [
  ["seed=195&faults=none&step=103", "An election", "Five controllers start. One times out first, asks for pre-votes, then for votes, and leads epoch 1."],
  ["seed=228&faults=kill,partition&step=142", "A split vote", "Two stand in epoch 1, a partition comes between, and nobody wins: epoch 2 has to decide."],
  ["seed=195&faults=partition,isolate,broken-link&step=633", "A deposed leader", "Controller 4 hears nobody, resigns, and has to cut off what no majority ever had."],
  ["seed=195&faults=kill,power-cut&step=999", "A leader loses power", "What it had appended last was on no other disk, so the next leader writes other records there."],
  ["seed=70&faults=none&mutant=pre-votes-count&step=139", "A bug: two leaders", "Pre-votes are counted as votes, so two controllers lead epoch 1 and write different records."],
  ["seed=24&faults=partition,kill&mutant=older-epochs-by-counting&step=700", "A bug: Raft’s Figure 8", "A leader commits records of an older epoch by counting disks, and they could be lost again."],
];
const SPEEDS = [2, 5, 10, 25, 60];
const NAMES = { state: "state", epoch: "epoch", leader: "leader", voted: "vote", end: "log end", hw: "high watermark", durable: "on disk up to", config: "voters" };
const MARKS = { commit: "✓", truncate: "✂", append: "+", boot: "↑", install: "▤", note: "✕", durable: "▪" };
let kept = { key: "", run: null };

// Draw shapes into `parent`: {key, tag, at: attributes, words, title, x, y (moved by a transform)}. Known shapes are changed in place.
function paint(parent, shapes) {
  keyed(parent, shapes.filter(Boolean), (each) => each.key, (each) => svg(each.tag), (node, each) => {
    if (each.words !== undefined) text(node, each.words);
    set(node, each.at);
    if (each.title) { node.titled ??= node.appendChild(svg("title")); text(node.titled, each.title); }
  });
}
const moved = (node, x, y) => { node.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`; };
const known = (value) => (value === -1 || value === undefined ? "none" : Array.isArray(value) ? value.join(" ") || "none" : String(value));
const ms = (us) => `${count(Number((us / 1000).toFixed(1)))} ms`;
const legend = (...parts) => h("p", { class: "legend" }, parts.map((part) => h("span", null, part)));
const swatch = (kind) => h("i", { class: `swatch ${kind}` });

export default {
  title: "Simulator",
  open(view, app) {
    if (!app.query.get("seed")) app.query = new URLSearchParams(STORIES[0][0]);
    const asked = Object.fromEntries(["seed", "faults", "mutant"].map((name) => [name, app.query.get(name) ?? ""]));
    let run = null, at = 0, only = null, speed = 10, timer = 0, saving = 0, closed = false;
    const play = (changes) => app.go(`/sim?${new URLSearchParams(Object.entries({ ...asked, ...changes }).filter(([, value]) => value !== ""))}`);

    // -- the form, the stories and the verdict
    const seed = h("input", { type: "number", min: 0, step: 1, value: asked.seed, required: true });
    const faults = h("input", { value: asked.faults, list: "known-faults", placeholder: "as the seed draws", spellcheck: "false" });
    const faultNames = h("datalist", { id: "known-faults" });
    const mutant = h("select", null, h("option", { value: asked.mutant }, asked.mutant || "none"));
    const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); play({ seed: seed.value, faults: faults.value.replaceAll(" ", ""), mutant: mutant.value }); } },
      h("label", null, "Seed", seed), h("label", null, "Faults: names with commas, or none", faults, faultNames), h("label", null, "Planted bug", mutant), h("button", { class: "primary" }, "Play this seed"),
      h("button", { type: "button", disabled: asked.seed === "0", onclick: () => play({ seed: Number(asked.seed) - 1 }) }, "Previous seed"), h("button", { type: "button", onclick: () => play({ seed: Number(asked.seed) + 1 }) }, "Next seed"));
    const isTold = (query) => ["seed", "faults", "mutant"].every((name) => (new URLSearchParams(query).get(name) ?? "") === asked[name]);
    const stories = h("ul", { class: "plain stories" }, STORIES.map(([query, title, words]) => h("li", null, link(`/sim?${query}`, title), h("span", null, ` ${words}`), isTold(query) ? h("b", null, " Shown below.") : null)));
    const verdict = h("p", { class: "verdict", role: "status" }, "Playing the seed …"), facts = h("dl", { class: "facts" }), command = h("code", { tabindex: 0 }), details = h("details", { hidden: true }, h("summary", null, "What this seed has drawn"), facts, h("div", { class: "command" }, command));
    view.append(h("section", null, stories, form, verdict, details));

    // -- the player
    const overview = svg("svg", { class: "overview", role: "img", "aria-label": "Leaders, elections, faults and the verdict along the steps" });
    const slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step", oninput: () => go(Number(slider.value)) });
    const place = h("output", { class: "place" }), sentence = h("p", { class: "sentence" }), term = h("p", { class: "note term" }), changes = h("p", { class: "changes" });
    const running = h("button", { class: "primary", onclick: () => toggle() }, "▶ Play");
    const pace = h("select", { "aria-label": "Speed", onchange: () => { speed = Number(pace.value); } }, SPEEDS.map((each) => h("option", { value: each, selected: each === speed }, `${each} steps/s`)));
    const of = h("select", { "aria-label": "Steps of", onchange: () => filter(of.value === "" ? null : Number(of.value)) });
    const button = (words, title, act) => h("button", { title, "aria-label": title, onclick: act }, words);
    const player = h("section", { class: "player", hidden: true }, h("h2", { class: "aside" }, "The step"), overview, slider,
      h("div", { class: "tools" }, button("⇤", "First step (Home)", () => go(0)), button("◀ event", "Event before (Shift ←)", () => jump(-1, true)), button("◀", "Step back (←)", () => jump(-1)), running,
        button("▶", "Step forward (→)", () => jump(1)), button("event ▶", "Next event (Shift →)", () => jump(1, true)), button("⇥", "Last step (End)", () => go(run.steps.length - 1)), pace, of, place),
      sentence, changes, term);

    // -- the pictures
    const picture = (name, label, ...layers) => { const node = svg("svg", { class: name, role: "group", "aria-label": label }, layers); return node; };
    const layer = () => svg("g");
    const [links, dots, nodes, lines, laneParts] = [layer(), layer(), layer(), layer(), layer()];
    const head = svg("defs", null, svg("marker", { id: "sim-head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", markerUnits: "userSpaceOnUse" }, svg("path", { d: "M0 0L8 4L0 8Z", fill: "context-stroke" })));
    const ring = picture("sim-ring", "Nodes and messages under way", head, links, dots, nodes), logs = picture("sim-logs", "Logs of the nodes", lines), space = picture("sim-space", "Messages and events around the step", laneParts);
    const tip = h("p", { class: "note tip-line" }, "\u00a0"), flights = h("ul", { class: "plain flights" }), flightsTitle = h("h3"), inForce = h("p", { class: "in-force" }), knowsTitle = h("h2"), knows = h("div");
    const pictures = h("div", { hidden: true },
      h("div", { class: "sim-pair" },
        h("section", null, h("h2", null, "Now"), ring, tip, inForce, legend(...Object.entries(LOOKS).map(([name, [glyph]]) => `${glyph} ${name}`), "⬤ request", "◯ answer")),
        h("section", null, knowsTitle, knows, flightsTitle, flights)),
      h("section", null, h("h2", null, "Logs"), logs, legend([swatch("held"), "known to be committed"], [swatch("ahead"), "on disk"], [swatch("loose"), "not on disk yet"], [swatch("other"), "≠ the newest leader has others"], "▾ high watermark", "▵ what the leader knows of the follower")),
      h("section", null, h("h2", null, "Space and time ", h("small", null, "each step has its column; click one to go there")), space, legend("thick: leads", "dashed: asks for votes", "dotted: down", [h("i", { class: "swatch vote" }), "votes"], [h("i", { class: "swatch fetch" }), "fetches"], [h("i", { class: "swatch begin" }), "leaders' announcements"], "✕ never arrives", "✓ commits", "+ appends", "▪ on disk", "✂ truncates")));
    const tell = (event) => { const shape = event.target.closest?.("[aria-label]"); text(tip, shape && shape !== ring ? shape.getAttribute("aria-label") : "\u00a0"); };
    ring.addEventListener("mouseover", tell);
    ring.addEventListener("focusin", tell);
    const chosen = (event) => { const id = event.target.closest("[data-node]")?.dataset.node; if (id !== undefined) filter(only === Number(id) ? null : Number(id)); };
    ring.addEventListener("click", chosen);
    ring.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); chosen(event); } });
    space.addEventListener("click", (event) => { const step = event.target.closest("[data-step]")?.dataset.step; if (step) go(Number(step)); });
    view.append(player, pictures);

    // -- moving through the steps
    const concerns = (step) => only === null || step.node === only || step.peer === only || step.hit?.includes(only);
    function next(from, way, interesting) {
      for (let to = from + way; to >= 0 && to < run.steps.length; to += way) if (concerns(run.steps[to]) && (!interesting || isOfInterest(run.steps[to]))) return to;
      return null;
    }
    function jump(way, interesting = false) { const to = next(at, way, interesting); if (to !== null) go(to); return to !== null; }
    function filter(id) { only = id; of.value = id ?? ""; go(at); }
    function toggle(go = !timer) {
      clearTimeout(timer);
      const tick = () => { timer = jump(1) ? setTimeout(tick, 1000 / speed) : 0; if (!timer) toggle(false); };
      timer = go ? setTimeout(tick, 1000 / speed) : 0;
      text(running, timer ? "‖ Pause" : "▶ Play");
      set(sentence, { "aria-live": timer ? "off" : "polite" });
    }
    function go(to) {
      at = Math.max(0, Math.min(run.steps.length - 1, to));
      draw();
      clearTimeout(saving); // browsers count changes of the URL
      saving = setTimeout(() => { if (!closed) app.setQuery({ ...asked, step: at, node: only }); }, 200);
    }
    function key(event) {
      if (!run || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input:not([type=range]), select, textarea, dialog")) return;
      const isOnButton = event.target.closest?.("button, a, summary, [role=button]");
      const acts = { ArrowLeft: () => jump(-1, event.shiftKey), ArrowRight: () => jump(1, event.shiftKey), Home: () => go(0), End: () => go(run.steps.length - 1), " ": isOnButton ? null : () => toggle() };
      if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
    }

    const about = (flight) => `${nameOf(run, flight.from, at)} to ${nameOf(run, flight.to, at)}: ${flight.step.text}; ${journey(run, flight)}`;

    // -- drawing a moment
    function draw() {
      const step = run.steps[at], moment = run.moments[at], before = run.moments[at - 1]?.nodes[step.node];
      slider.value = at;
      const told = say(run, at);
      set(slider, { "aria-valuetext": told.sentence });
      text(place, `step ${count(at)} of ${count(run.steps.length - 1)}, ${(step.time_us / 1e6).toFixed(6)} s`);
      text(sentence, told.sentence);
      set(sentence, { class: `sentence ${step.event === "verdict" ? (run.seed.violation ? "bad" : "good") : ""}` });
      text(term, told.term || "\u00a0");
      keyed(changes, Object.entries(step.changed ?? {}).filter(([name, value]) => before && known(before[name]) !== known(value)), ([name]) => name, () => h("span"),
        (node, [name, value]) => text(node, `${NAMES[name]} ${known(before[name])} → ${known(value)}`));
      if (!changes.firstChild) text(changes, "\u00a0");
      drawOverview();
      drawRing(step, moment);
      drawKnows(step, moment);
      drawLogs(moment);
      drawSpace();
    }

    function size(node, height) { const width = Math.max(260, node.parentNode.clientWidth - parseFloat(getComputedStyle(node.parentNode).paddingLeft) * 2); set(node, { width, height: height(width), viewBox: `0 0 ${width} ${height(width)}` }); return [width, height(width)]; }

    function drawOverview() {
      const [width] = size(overview, () => 34), last = Math.max(1, run.steps.length - 1), x = (step) => 8 + (step / last) * (width - 16);
      const bands = run.reigns.map(({ from, to, epoch, leader }) => ({ key: `b${from}`, tag: "rect", at: { x: x(from), y: 12, width: Math.max(1, x(to) - x(from)), height: 10, fill: hue(epoch), opacity: leader < 0 ? 0.25 : 0.9 }, title: leader < 0 ? `no leader after epoch ${epoch}` : `controller ${leader} leads epoch ${epoch}` }));
      const shapes = run.marks.map(({ step, kind, words }) => kind === "strike" ? { key: step, tag: "rect", at: { class: "strike", x: x(step) - 1, y: 24, width: 2, height: 8 }, title: words }
        : { key: step, tag: "text", at: { class: kind, x: x(step), y: kind === "cut" ? 33 : 10, "text-anchor": "middle" }, words: kind === "election" ? "★" : kind === "cut" ? "✂" : "✕" });
      paint(overview, [...bands, ...shapes, { key: "now", tag: "line", at: { class: "now", x1: x(at), x2: x(at), y1: 0, y2: 34 } }]);
    }

    function places(width, height) {
      const total = run.moments[0].nodes.length, radius = [Math.min(width / 2 - 64, 280), height / 2 - 82];
      return Array.from({ length: total }, (_, id) => { const turn = (id / total) * 2 * Math.PI - Math.PI / 2; return [width / 2 + radius[0] * Math.cos(turn), height / 2 + radius[1] * Math.sin(turn)]; });
    }

    function drawRing(step, { nodes: all, weather }) {
      const [width, height] = size(ring, (wide) => Math.round(Math.max(350, Math.min(wide * 0.72, 500)))), spot = places(width, height), round = width < 420 ? 22 : 27;
      const way = (from, to, aside = 0) => {
        const [x1, y1] = spot[from], [x2, y2] = spot[to], long = Math.hypot(x2 - x1, y2 - y1) || 1, [dx, dy] = [(x2 - x1) / long, (y2 - y1) / long];
        return (part) => { const along = round + 4 + part * (long - 2 * round - 8); return [x1 + dx * along - dy * aside, y1 + dy * along + dx * aside]; };
      };
      const line = (from, to, aside, attributes) => { const on = way(from, to, aside), [x1, y1] = on(0), [x2, y2] = on(1); return { x1, y1, x2, y2, ...attributes }; };
      const links_ = [];
      for (const [kind, glyph] of [["cut", "✂"], ["held", "‖"]]) for (const [from, to] of weather[kind]) {
        if (from === to || !spot[from] || !spot[to]) continue;
        const both = weather[kind].some(([a, b]) => a === to && b === from);
        if (both && from > to) continue;
        const [x, y] = way(from, to, both ? 0 : 5)(both ? 0.5 : 0.66);
        links_.push({ key: `${kind}${from}-${to}`, tag: "line", at: line(from, to, both ? 0 : 5, { class: kind, ...(both ? {} : { "marker-end": "url(#sim-head)" }) }) },
          { key: `${kind}${from}-${to}g`, tag: "text", at: { class: `${kind}-glyph`, x, y: y + 5, "text-anchor": "middle" }, words: glyph });
      }
      const under = pending(run, at), mine = run.bySend.get(step.sent_in ?? at);
      if (mine && mine.to >= 0 && mine.to !== mine.from) links_.push({ key: "mine", tag: "line", at: line(mine.from, mine.to, 5, { class: `mine ${kindOf(mine.step)}`, "marker-end": "url(#sim-head)" }) });
      paint(links, links_);
      const flying = under.map((each, place) => ({ ...each, place, key: `${each.flight.at}.${each.number}` }));
      if (mine && step.sent_in !== undefined && mine.to !== mine.from) flying.push({ flight: mine, key: `${mine.at}.${mine.arrivals.indexOf(at)}`, part: 1 });
      keyed(dots, flying, (each) => each.key,
        ({ flight }) => svg("g", { class: `dot-of ${kindOf(flight.step)}`, tabindex: 0, role: "img" }, flight.step.event === "send" ? svg("circle", { r: 5 }) : svg("circle", { r: 4.5, class: "answer" }), svg("text", { x: 8, y: 4 })),
        (node, { flight, part, number, place = 0 }) => {
          const [x, y] = way(flight.from, flight.to, 5)(part);
          moved(node, x, y);
          set(node, { "aria-label": about(flight), "data-fate": flight.fate, "data-again": number ? "" : null });
          set(node.lastChild, { y: place % 2 ? 15 : -6 });
          text(node.lastChild, (flight.fate === "lost" ? "✕ " : "") + (flying.length <= 10 || flight === mine ? short(flight.step) + (number ? " again" : "") : ""));
        });
      keyed(nodes, all, (each) => each.id, (each) => svg("g", { tabindex: 0, role: "button", "data-node": each.id },
        svg("circle", { class: "halo", r: round + 7 }), each.id < run.seed.options.voters ? svg("circle", { class: "body", r: round }) : svg("rect", { class: "body", x: -round, y: -round, width: 2 * round, height: 2 * round, rx: 9 }),
        svg("text", { class: "glyph", y: -3 }), svg("text", { class: "id", y: 15 }), svg("text", { class: "word" }), svg("text", { class: "small" }), svg("text", { class: "small" })),
      (node, each) => {
        const look = lookOf(each, weather), [x, y] = spot[each.id], isLow = y > height / 2 + 1, [halo, body, glyph, id, word, more, most] = node.children, [base, apart] = [isLow ? round + 19 : -round - 38, 14];
        moved(node, x, y);
        set(node, { class: `node ${look}${only === each.id ? " only" : ""}`, "aria-pressed": String(only === each.id) });
        set(halo, { class: step.node === each.id || step.hit?.includes(each.id) ? "halo now" : "halo" });
        set(body, { stroke: hue(each.epoch), r: body.tagName === "circle" ? round : null });
        const trouble = [weather.paused.includes(each.id) && "stands still", weather.disks[each.id] && `disk ${weather.disks[each.id]}`].filter(Boolean).join(", ");
        [[glyph, LOOKS[look][0]], [id, ` ${each.id}`], [word, ` ${look}`], [more, ` epoch ${each.epoch}${each.voted >= 0 ? ` · vote ${each.voted}` : ""}`], [most, trouble || ` log ${each.end} · hw ${known(each.hw)}`]].forEach(([part, words]) => text(part, words));
        [word, more, most].forEach((part, row) => set(part, { y: base + row * apart }));
        set(most, { class: trouble ? "small trouble" : "small" });
      });
      text(flightsTitle, under.length ? `Messages under way: ${under.length}` : "No message is under way.");
      keyed(flights, under.slice(0, 10), (each) => `${each.flight.at}.${each.number}`, ({ flight }) => h("li", { class: kindOf(flight.step) }, h("i", { class: "swatch sort" }), about(flight)));
      text(set(inForce, { class: weatherOf(weather) ? "in-force" : "note" }), weatherOf(weather) || "No fault is in force.");
    }

    function drawKnows(step, { nodes: all, weather, truth }) {
      const id = only ?? (step.node >= 0 ? step.node : Math.max(0, truth.leader)), node = all[id], now = step.time_us;
      text(knowsTitle, `What ${nameOf(run, id, at)} knows at this moment`);
      const isAsking = node.state === "candidate" || node.state === "prospective", leads = node.state === "leader", others = all.filter((each) => each.id !== id);
      const wrong = weather.down.includes(id) ? "It is down: it will know what is on its disk, and nothing else."
        : truth.epoch > node.epoch ? `It does not know that ${nameOf(run, truth.leader, at)} was elected in epoch ${truth.epoch}.` : leads && all.some((each) => each.epoch > node.epoch) ? "It leads, and does not know that others are in a later epoch." : "";
      const needed = Math.floor(node.config.length / 2) + 1;
      const asks = isAsking ? `It has ${node.yes.length} of ${needed} votes that it needs.` : leads ? `Records count as committed when ${needed} of ${node.config.length} voters have them on disk.` : "";
      const told = [["epoch", node.epoch], ["leader", known(node.leader)], ["vote", known(node.voted)], ["log end", node.end], ["on disk up to", node.durable], ["high watermark", known(node.hw)], ["voters", known(node.config)], ["state", node.state]];
      const list = knows.firstChild ?? knows.appendChild(h("dl", { class: "facts tight" })), said = knows.children[1] ?? knows.appendChild(h("p", { class: "bad" })), asking = knows.children[2] ?? knows.appendChild(h("p"));
      const table = knows.children[3] ?? knows.appendChild(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "What it knows of the others" }, h("table", { class: "stack" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "of"), h("th", { scope: "col" }, "last heard"), h("th", { scope: "col" }, "it knows"))), h("tbody"))));
      keyed(list, told, ([name]) => name, ([name]) => fact(name, h("dd")), (row, [, value]) => text(row.lastChild, value));
      for (const [node, words] of [[said, wrong], [asking, asks]]) { text(node, words); node.hidden = !words; }
      keyed(table.querySelector("tbody"), others, (each) => each.id, () => h("tr", null, h("th", { scope: "row" }), h("td", { class: "wrap", "data-of": "last heard" }), h("td", { class: "wrap", "data-of": "it knows" })), (row, each) => {
        const [name, heard, has] = row.children, from = node.heard[each.id], last = from === undefined ? null : run.steps[from], reached = node.reached[each.id];
        text(name, nameOf(run, each.id, at));
        text(heard, last ? `${ms(now - last.time_us)} ago: ${short(last.sent_in === undefined ? last : run.steps[last.sent_in])}` : "never");
        text(has, isAsking ? (node.yes.includes(each.id) ? "✓ grants its vote" : node.no.includes(each.id) ? "✕ refuses" : node.config.includes(each.id) ? "… has not answered" : "does not vote")
          : leads ? (reached ? `▵ has the log up to ${reached.offset}` : "nothing of its log so far") : each.id === node.leader ? "★ leads, as far as it knows" : each.id === node.voted ? "has its vote" : "–");
      });
    }

    function drawLogs({ nodes: all, weather, truth }) {
      const row = 40, [width] = size(logs, () => 22 + row * all.length), left = width < 500 ? 66 : 124, cell = 22, columns = Math.floor((width - left - 10) / cell);
      const end = Math.max(...all.map((each) => each.end), columns - 1), from = Math.max(0, end - columns + 1), x = (offset) => left + (Math.max(from, Math.min(end + 1, offset)) - from) * cell, shapes = [];
      for (let offset = Math.ceil(from / 5) * 5; offset <= end; offset += 5) shapes.push({ key: `o${offset}`, tag: "text", at: { x: x(offset) + 1, y: 12 }, words: offset });
      const leader = all[truth.leader], ofLeader = leader && new Map(leader.log.map((each) => [each.end, each.crc]));
      for (const node of all) {
        const y = 22 + row * node.id, look = lookOf(node, weather);
        shapes.push({ key: `n${node.id}`, tag: "text", at: { class: "label-of", x: 0, y: y + 20 }, words: `${LOOKS[look][0]} ${node.id}${width < 500 ? ` e${node.epoch}` : ` ${look}, e${node.epoch}`}` },
          { key: `l${node.id}`, tag: "line", at: { class: "base", x1: left, x2: width - 4, y1: y + 29, y2: y + 29 } });
        if (node.start > from) shapes.push({ key: `s${node.id}`, tag: "rect", at: { class: "snapshot", x: left, y: y + 6, width: x(node.start) - left - 2, height: 22, rx: 4 }, title: `a snapshot replaces everything before offset ${node.start}` },
          { key: `st${node.id}`, tag: "text", at: { x: left + 6, y: y + 21 }, words: x(node.start) - left > 110 ? `snapshot to ${node.start}` : x(node.start) - left > 24 ? "▤" : "" });
        let differed = false;
        for (const each of node.log) {
          if (each.end <= from) continue;
          const differs = leader && leader !== node && each.end > leader.start && ofLeader.get(each.end) !== each.crc, isHeld = each.end <= node.hw, isLoose = each.end > node.durable, start = x(Math.max(each.from, node.start)), wide = x(each.end) - start - 2;
          const kind = isHeld ? "held" : isLoose ? "loose" : "ahead", key = `${node.id}.${each.from}.${each.end}.${each.crc}`;
          shapes.push({ key, tag: "rect", at: { class: `entry ${kind}`, x: start, y: y + 6, width: Math.max(2, wide), height: 22, rx: 4, fill: hue(each.epoch), stroke: hue(each.epoch) }, title: `offsets ${each.from} to ${each.end - 1}, epoch ${each.epoch}: ${kind === "held" ? "committed" : kind === "loose" ? "not on disk yet" : "on disk, not known to be committed"}${each.voters ? `; voters ${each.voters.join(", ")}` : ""}${differs ? "; the newest leader has other records here, or none" : ""}` });
          if (wide > 14) shapes.push({ key: `${key}t`, tag: "text", at: { class: isHeld ? "inside" : "outside", x: start + wide / 2, y: y + 21, "text-anchor": "middle" }, words: each.voters && wide > 60 ? `e${each.epoch} voters` : each.epoch });
          if (differs) shapes.push({ key: `${key}d`, tag: "path", at: { class: "differs", d: `M${start} ${y + 32}h${Math.max(2, wide)}` } }, differed ? null : { key: `${key}n`, tag: "text", at: { class: "differs-glyph", x: start + wide / 2, y: y + 6, "text-anchor": "middle" }, words: "≠" });
          differed = differs;
        }
        if (node.hw >= from) shapes.push({ key: `h${node.id}`, tag: "text", at: { class: "hw", x: x(node.hw) - 1, y: y + 7, "text-anchor": "middle" }, words: "▾" });
        const reached = leader?.state === "leader" && leader.reached[node.id];
        if (reached && reached.offset >= from) shapes.push({ key: `r${node.id}`, tag: "text", at: { class: "reached", x: x(reached.offset) - 1, y: y + 38, "text-anchor": "middle" }, words: "▵" });
      }
      paint(lines, shapes);
      set(logs, { "aria-label": all.map((each) => `${nameOf(run, each.id, at)}: log to ${each.end}, on disk to ${each.durable}, committed to ${known(each.hw)}`).join("; ") });
    }

    function drawSpace() {
      const total = run.moments[0].nodes.length, row = 52, [width, height] = size(space, () => 46 + row * total), left = width < 500 ? 34 : 100, cell = width < 500 ? 15 : 18, columns = Math.floor((width - left - 10) / cell);
      const first = Math.max(0, Math.min(at - Math.floor(columns * 0.6), run.steps.length - columns)), last = Math.min(run.steps.length - 1, first + columns - 1), x = (step) => left + (step - first + 0.5) * cell, y = (id) => 40 + row * id, shapes = [], over = [];
      shapes.push({ key: "now", tag: "rect", at: { class: "column", x: x(at) - cell / 2, y: 14, width: cell, height: height - 32 } });
      for (let id = 0; id < total; id++) {
        shapes.push({ key: `n${id}`, tag: "text", at: { class: "label-of", x: 0, y: y(id) + 4 }, words: width < 500 ? id : nameOf(run, id, at) });
        for (let step = first; step <= last;) {
          const { nodes: all, weather } = run.moments[step], look = lookOf(all[id], weather), began = step;
          while (step <= last && lookOf(run.moments[step].nodes[id], run.moments[step].weather) === look && run.moments[step].nodes[id].epoch === all[id].epoch) step++;
          shapes.push({ key: `a${id}.${began === first ? "first" : began}`, tag: "line", at: { class: `lane-of ${look}`, x1: x(began) - cell / 2, x2: x(step - 1) + cell / 2, y1: y(id), y2: y(id), stroke: look === "down" ? "var(--faint)" : hue(all[id].epoch) }, title: `${nameOf(run, id, at)} ${LOOKS[look][1]}, epoch ${all[id].epoch}` });
          if (step - began > 3) over.push({ key: `e${id}.${began === first ? "first" : began}`, tag: "text", at: { class: "epoch-of", x: x(began) - cell / 2 + 3, y: y(id) - 10 }, words: `${LOOKS[look][0]} e${all[id].epoch}` });
        }
      }
      const mine = run.bySend.get(run.steps[at].sent_in ?? at);
      for (const flight of run.flights) {
        if (flight.at > last) break;
        if (flight.to < 0 || flight.to === flight.from || (flight.arrivals.at(-1) ?? flight.at) < first) continue;
        const cls = `arrow ${flight.fate} ${kindOf(flight.step)}${flight === mine ? " mine" : ""}`, title = about(flight), down = Math.sign(flight.to - flight.from);
        if (!flight.arrivals.length) over.push({ key: `m${flight.at}`, tag: "line", at: { class: cls, x1: x(flight.at), y1: y(flight.from), x2: x(flight.at) + cell, y2: y(flight.from) + down * 20 }, title }, flight.fate === "open" ? null : { key: `x${flight.at}`, tag: "text", at: { class: "lost-glyph", x: x(flight.at) + cell, y: y(flight.from) + down * 20 + 4, "text-anchor": "middle" }, words: "✕" });
        flight.arrivals.forEach((arrival, number) => {
          if (arrival < first) return;
          const share = (step) => (y(flight.from) + ((step - flight.at) / (arrival - flight.at)) * (y(flight.to) - y(flight.from))), [a, b] = [Math.max(flight.at, first - 1), Math.min(arrival, last + 1)];
          over.push({ key: `m${flight.at}.${number}`, tag: "line", at: { class: `${cls}${number ? " again" : ""}`, x1: x(a), y1: share(a), x2: x(b), y2: share(b), ...(arrival <= last ? { "marker-end": "url(#sim-head)" } : {}) }, title });
        });
      }
      let free = 0;
      for (let step = first; step <= last; step++) {
        const each = run.steps[step], mark = each.event === "state" ? LOOKS[run.moments[step].nodes[each.node].state][0] : MARKS[each.event];
        if (each.event === "strike") {
          over.push({ key: `f${step}`, tag: "line", at: { class: "strike", x1: x(step), x2: x(step), y1: 16, y2: height - 18 } });
          if (x(step) > free) { over.push({ key: `ft${step}`, tag: "text", at: { class: "strike-of", x: x(step), y: 11 }, words: each.fault }); free = x(step) + each.fault.length * 6.4 + 8; }
        } else if (each.node >= 0) over.push(mark ? { key: `g${step}`, tag: "text", at: { class: `mark-of ${each.event}`, x: x(step), y: y(each.node) + 5, "text-anchor": "middle" }, words: mark } : { key: `g${step}`, tag: "circle", at: { class: "point", cx: x(step), cy: y(each.node), r: 2.5 } });
        if ((step - first) % Math.ceil(96 / cell) === 0) over.push({ key: `t${step - first}`, tag: "text", at: { x: x(step) - cell / 2, y: height - 3 }, words: `${(each.time_us / 1e6).toFixed(4)} s` });
        over.push({ key: `c${step - first}`, tag: "rect", at: { class: "hit", "data-step": step, x: x(step) - cell / 2, y: 14, width: cell, height: height - 32, "data-dim": concerns(each) ? null : "" }, title: say(run, step).sentence });
      }
      paint(laneParts, [...shapes, ...over]);
    }

    // -- loading
    async function load() {
      const key = JSON.stringify(asked);
      try {
        if (kept.key !== key) kept = { key, run: fold(await app.get("seed", asked)) };
      } catch (error) { set(verdict, { class: "verdict bad" }); text(verdict, error.message); return; }
      if (closed) return;
      run = kept.run;
      const { seed: found } = run, drawn = found.options;
      faultNames.replaceChildren(...Object.entries(found.faults).map(([value, words]) => h("option", { value }, words)));
      mutant.replaceChildren(h("option", { value: "" }, "none"), ...Object.entries(found.mutants).map(([value, words]) => h("option", { value, selected: value === asked.mutant }, `${value}: ${words}`)));
      of.replaceChildren(h("option", { value: "" }, "steps of all nodes"), ...run.moments[0].nodes.map(({ id }) => h("option", { value: id }, `steps of node ${id}`)));
      set(verdict, { class: `verdict ${found.violation ? "bad" : "good"}` });
      const cut = found.total > run.steps.length ? ` The run has ${count(found.total)} steps; here are the first ${count(run.steps.length)}.` : "";
      verdict.replaceChildren(found.violation ? `✕ A rule is broken: ${found.violation}.` : "✓ All rules held.", found.rule ? ` The rule: ${found.rule}.` : "", cut, found.violation && !cut ? [" "] : "", found.violation && !cut ? h("button", { onclick: () => go(run.steps.length - 1) }, "Go there") : "");
      const network = drawn.network;
      facts.replaceChildren(...[["voters", drawn.voters], ["observers", drawn.observers], ["voters are", drawn.dynamic_voters ? "in the log (KIP-853)" : "static"], ["network delay", ms(network.delay_us)], ["lost", `${(network.loss ?? 0) / 10} % of requests, ${(network.response_loss ?? 0) / 10} % of answers`], ["doubled", `${(network.duplicates ?? 0) / 10} %`], ["order of messages", network.reordering ? "any" : "kept"],
        ["a disk takes", ms(drawn.disk_latency_us)], ["election timeout", `${drawn.tuning.election_timeout_ms} ms and more`], ["records committed", count(found.committed)], ["virtual time", `${(found.ended_us / 1e6).toFixed(1)} s`], ["faults", drawn.faults.join(", ") || "none"]].map(([name, value]) => fact(name, h("dd", null, String(value)))));
      text(command, `kraftlab sim --seed ${asked.seed}${asked.faults ? ` --faults ${asked.faults}` : ""}${asked.mutant ? ` --mutant ${asked.mutant}` : ""} --trace`);
      set(slider, { max: run.steps.length - 1 });
      for (const node of [details, player, pictures]) node.hidden = false;
      only = app.query.has("node") ? Number(app.query.get("node")) : null;
      of.value = only ?? "";
      go(Number(app.query.get("step") ?? 0));
    }
    const resized = new ResizeObserver(() => { if (run && !closed) draw(); });
    resized.observe(view);
    document.addEventListener("keydown", key);
    load();
    return { close() { closed = true; clearTimeout(timer); clearTimeout(saving); resized.disconnect(); document.removeEventListener("keydown", key); } };
  },
};
