// The page of a seed of the simulator: step through it, forwards and backwards, and see who knows what. Every view is a URL.
import { h, keyed, text, set, button, fact, grid, offer, section, count, link } from "./dom.js";
import { fold, isOfInterest } from "./sim_fold.js";
import { say, short, nameOf, kindOf, LOOKS } from "./sim_words.js";
import { overview, ring, logs, space, about, known } from "./sim_draw.js";

const STORIES = [
  ["seed=195&faults=none&step=103", "An election", "Five controllers start. One times out first, asks for pre-votes, then for votes, and leads epoch 1."],
  ["seed=228&faults=kill,partition&step=142", "A split vote", "Two stand in epoch 1, a partition comes between, and nobody wins: epoch 2 has to decide."],
  ["seed=195&faults=partition,isolate,broken-link&step=633", "A deposed leader", "Controller 4 hears nobody, resigns, and has to cut off what no majority ever had."],
  ["seed=195&faults=kill,power-cut&step=999", "A leader loses power", "What it appended last is on no other disk, so the next leader writes other records there."],
  ["seed=70&faults=none&mutant=pre-votes-count&step=139", "A bug: two leaders", "Pre-votes are counted as votes, so two controllers lead epoch 1 and write different records."],
  ["seed=24&faults=partition,kill&mutant=older-epochs-by-counting&step=700", "A bug: Raft’s Figure 8", "A leader commits records of an older epoch by counting disks, and they could be lost again."],
];
const SPEEDS = [2, 5, 10, 25, 60], CHOICES = ["seed", "faults", "mutant"];
const NAMES = { state: "state", epoch: "epoch", leader: "leader", voted: "vote", end: "log end", durable: "on disk up to", hw: "high watermark", config: "voters" };
const ms = (us) => `${count(Number((us / 1000).toFixed(1)))} ms`;
const percent = (perThousand) => `${(perThousand ?? 0) / 10} %`;
const legend = (...parts) => h("p", { class: "legend" }, parts.map((part) => h("span", null, part)));
const swatch = (kind) => h("i", { class: `swatch ${kind}` });
let kept = { key: "", run: null };

// What the options of a seed mean, for people.
function drawnBy({ options: drawn, committed, ended_us }) {
  const { network } = drawn;
  return [["voters", drawn.voters], ["observers", drawn.observers], ["voters are", drawn.dynamic_voters ? "in the log (KIP-853)" : "static"], ["network delay", ms(network.delay_us ?? 500)],
    ["lost", `${percent(network.loss)} of requests, ${percent(network.response_loss)} of answers`], ["doubled", percent(network.duplicates)], ["order of messages", network.reordering ? "any" : "kept"],
    ["a disk takes", ms(drawn.disk_latency_us)], ["election timeout", `${drawn.tuning?.election_timeout_ms ?? 300} ms and more`], ["records committed", count(committed)], ["virtual time", `${(ended_us / 1e6).toFixed(1)} s`], ["faults", drawn.faults.join(", ") || "none"]];
}

// What a node knows of itself and of the others, and what it is wrong about.
function knowledge() {
  const title = h("h2"), own = h("dl", { class: "facts tight" }), wrong = h("p", { class: "bad" }), asks = h("p"), flightsTitle = h("h3"), flights = h("ul", { class: "plain flights" });
  const others = grid("What it knows of the others", ["of", "~last heard", "~it knows"], ({ each }) => each.id, () => [], ({ each, node, run, at }) => {
    const heard = run.steps[node.heard[each.id]];
    return [nameOf(run, each.id, at), heard ? `${ms(run.steps[at].time_us - heard.time_us)} ago: ${short(run.steps[heard.sent_in] ?? heard)}` : "never", ofOther(node, each.id)];
  }, "", null);

  function error(run, at, id) {
    const { nodes, weather, truth } = run.moments[at], node = nodes[id];
    if (weather.down.includes(id)) return "It is down: it will know what is on its disk, and nothing else.";
    if (truth.epoch > node.epoch) return `It does not know that ${nameOf(run, truth.leader, at)} was elected in epoch ${truth.epoch}.`;
    return node.state === "leader" && nodes.some((each) => each.epoch > node.epoch) ? "It leads, and does not know that others are in a later epoch." : "";
  }
  function ofOther(node, id) {
    if (node.state === "candidate" || node.state === "prospective") return node.yes.includes(id) ? "✓ grants its vote" : node.no.includes(id) ? "✕ refuses" : node.config.includes(id) ? "… has not answered" : "does not vote";
    if (node.state === "leader") return node.reached[id] ? `▵ has the log up to ${node.reached[id].offset}` : "nothing of its log so far";
    return id === node.leader ? "★ leads, as far as it knows" : id === node.voted ? "has its vote" : "–";
  }
  function draw(run, at, only, under) {
    const step = run.steps[at], { nodes, truth } = run.moments[at], id = only ?? (step.node >= 0 ? step.node : Math.max(0, truth.leader)), node = nodes[id], needed = Math.floor(node.config.length / 2) + 1;
    text(title, `What ${nameOf(run, id, at)} knows at this moment`);
    keyed(own, Object.entries(NAMES), ([name]) => name, ([, words]) => fact(words, h("dd")), (row, [name]) => text(row.lastChild, known(node[name])));
    const isAsking = node.state === "candidate" || node.state === "prospective";
    const told = isAsking ? `It has ${node.yes.length} of ${needed} votes that it needs.` : node.state === "leader" ? `Records count as committed when ${needed} of ${node.config.length} voters have them on disk.` : "";
    for (const [place, words] of [[wrong, error(run, at, id)], [asks, told]]) text(place, words).hidden = !words;
    others.update(nodes.filter((each) => each.id !== id).map((each) => ({ each, node, run, at })));
    text(flightsTitle, under.length ? `Messages under way: ${under.length}` : "No message is under way.");
    keyed(flights, under.slice(0, 10), ({ flight, number }) => `${flight.at}.${number}`, ({ flight }) => h("li", { class: kindOf(flight.step) }, swatch("sort"), about(run, at, flight)));
  }
  return { nodes: [title, own, wrong, asks, others.node, flightsTitle, flights], draw };
}

export default {
  title: "Simulator",
  open(view, app) {
    if (!app.query.get("seed")) app.query = new URLSearchParams(STORIES[0][0]);
    const asked = Object.fromEntries(CHOICES.map((name) => [name, app.query.get(name) ?? ""]));
    const play = (changes) => app.go(`/sim?${new URLSearchParams(Object.entries({ ...asked, ...changes }).filter(([, value]) => value !== ""))}`);
    const isTold = (query) => CHOICES.every((name) => (new URLSearchParams(query).get(name) ?? "") === asked[name]);
    let run = null, at = 0, only = null, speed = 10, timer = 0, saving = 0, closed = false;

    // -- the stories, the form and the verdict
    const seed = h("input", { type: "number", min: 0, step: 1, value: asked.seed, required: true }), faultNames = h("datalist", { id: "known-faults" });
    const faults = h("input", { value: asked.faults, list: "known-faults", placeholder: "as the seed draws", spellcheck: "false" }), mutant = h("select", null, h("option", { value: asked.mutant }, asked.mutant || "none"));
    const verdict = h("p", { class: "verdict", role: "status" }, "Playing the seed …"), facts = h("dl", { class: "facts" }), command = h("code", { tabindex: 0 });
    const details = h("details", { hidden: true }, h("summary", null, "What this seed has drawn"), facts, h("div", { class: "command" }, command));
    const another = (by, words) => button(words, () => play({ seed: Number(asked.seed) + by }), null, { type: "button", disabled: Number(asked.seed) + by < 0 });
    const submit = (event) => { event.preventDefault(); play({ seed: seed.value, faults: faults.value.replaceAll(" ", ""), mutant: mutant.value }); };
    view.append(h("section", null,
      h("ul", { class: "plain stories" }, STORIES.map(([query, title, words]) => h("li", null, set(link(`/sim?${query}`, title), { "aria-current": isTold(query) }), h("span", null, ` ${words}`)))),
      h("form", { class: "filters", onsubmit: submit }, h("label", null, "Seed", seed), h("label", null, "Faults: names with commas, or none", faults, faultNames), h("label", null, "Planted bug", mutant), button("Play this seed", null, "primary"), another(-1, "Previous seed"), another(1, "Next seed")),
      verdict, details));

    // -- the player
    const all = overview(), slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step", oninput: () => go(Number(slider.value)) });
    const place = h("output", { class: "place" }), sentence = h("p", { class: "sentence" }), term = h("p", { class: "note term" }), changes = h("p", { class: "changes" });
    const running = button("▶ Play", () => toggle(), "primary"), pace = h("select", { "aria-label": "Speed", onchange: () => { speed = Number(pace.value); } });
    offer(pace, SPEEDS.map((each) => [each, `${each} steps/s`]), String(speed));
    const whose = h("select", { "aria-label": "Steps of", onchange: () => filter(whose.value === "" ? null : Number(whose.value)) });
    const tool = (words, title, act) => button(words, act, null, { title, "aria-label": title });
    const player = h("section", { class: "player", hidden: true }, h("h2", { class: "aside" }, "The step"), all.node, slider,
      h("div", { class: "tools" }, tool("⇤", "First step (Home)", () => go(0)), tool("◀ event", "event before (Shift ←)", () => jump(-1, true)), tool("◀", "Step back (←)", () => jump(-1)), running,
        tool("▶", "Step forward (→)", () => jump(1)), tool("event ▶", "Next event ▶ (Shift →)", () => jump(1, true)), tool("⇥", "Last step (End)", () => go(run.steps.length - 1)), pace, whose, place),
      sentence, changes, term);

    // -- the pictures
    const tip = h("p", { class: "note tip-line" }, "\u00a0"), inForce = h("p"), now = ring((words) => text(tip, words)), entries = logs(), around = space((step) => go(step)), knows = knowledge();
    const choose = ({ target }) => { const id = target.closest("[data-node]")?.dataset.node; if (id !== undefined) filter(only === Number(id) ? null : Number(id)); };
    now.node.addEventListener("click", choose);
    now.node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(event); } });
    const pictures = h("div", { hidden: true },
      h("div", { class: "sim-pair" },
        section("Now", now.node, tip, inForce, legend(...Object.entries(LOOKS).map(([name, [glyph]]) => `${glyph} ${name}`), "⬤ request", "◯ answer")),
        h("section", null, knows.nodes)),
      section("Logs", entries.node, legend([swatch("held"), "known to be committed"], [swatch("ahead"), "on disk"], [swatch("loose"), "not on disk yet"], [swatch("other"), "≠ the newest leader has others"], "▾ high watermark", "▵ what the leader knows of the follower")),
      section(["Space and time ", h("small", null, "each step has its column; click one to go there")], around.node,
        legend("thick: leads", "dashed: asks for votes", "dotted: down", [swatch("vote"), "votes"], [swatch("fetch"), "fetches"], [swatch("begin"), "leaders' announcements"], [swatch("piece"), "snapshots"], "✕ never arrives", "✓ commits", "+ appends", "▪ on disk", "✂ truncates")));
    view.append(player, pictures);

    // -- moving through the steps
    const concerns = (step) => only === null || step.node === only || step.peer === only || step.hit?.includes(only) === true;
    function jump(way, interesting = false) {
      for (let to = at + way; to >= 0 && to < run.steps.length; to += way) if (concerns(run.steps[to]) && (!interesting || isOfInterest(run.steps[to]))) { go(to); return true; }
      return false;
    }
    function filter(id) { only = id; whose.value = id ?? ""; go(at); }
    function toggle(isOn = !timer) {
      clearTimeout(timer);
      const tick = () => { if (jump(1)) timer = setTimeout(tick, 1000 / speed); else toggle(false); };
      timer = isOn ? setTimeout(tick, 1000 / speed) : 0;
      text(running, timer ? "‖ Pause" : "▶ Play");
      set(sentence, { "aria-live": timer ? "off" : "polite" });
    }
    function go(to) {
      at = Math.max(0, Math.min(run.steps.length - 1, to));
      draw();
      clearTimeout(saving); // browsers count changes of the URL
      saving = setTimeout(() => app.setQuery({ ...asked, step: at, node: only }), 200);
    }
    function key(event) {
      if (!run || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input:not([type=range]), select, textarea, dialog")) return;
      const isOnButton = event.target.closest?.("button, a, summary, [role=button]");
      const acts = { ArrowLeft: () => jump(-1, event.shiftKey), ArrowRight: () => jump(1, event.shiftKey), Home: () => go(0), End: () => go(run.steps.length - 1), " ": isOnButton ? null : () => toggle() };
      if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
    }

    function draw() {
      const step = run.steps[at], before = run.moments[at - 1]?.nodes[step.node], told = say(run, at);
      slider.value = at;
      set(slider, { "aria-valuetext": told.sentence });
      text(place, `step ${count(at)} of ${count(run.steps.length - 1)}, ${(step.time_us / 1e6).toFixed(6)} s`);
      text(set(sentence, { class: `sentence ${step.event !== "verdict" ? "" : run.seed.violation ? "bad" : "good"}` }), told.sentence);
      text(term, told.term || "\u00a0");
      const differing = Object.entries(step.changed ?? {}).filter(([name, value]) => before && known(before[name]) !== known(value));
      keyed(changes, differing, ([name]) => name, () => h("span"), (node, [name, value]) => text(node, `${NAMES[name]} ${known(before[name])} → ${known(value)}`));
      all.draw(run, at);
      const { under, inForce: words } = now.draw(run, at, only);
      text(set(inForce, { class: words ? "in-force" : "term note" }), words || "No fault is in force.");
      knows.draw(run, at, only, under);
      entries.draw(run, at);
      around.draw(run, at, concerns);
    }

    // -- loading
    function show() {
      const { seed: found } = run, isCut = found.total > run.steps.length;
      faultNames.replaceChildren(...Object.entries(found.faults).map(([value, words]) => h("option", { value }, words)));
      mutant.replaceChildren();
      offer(mutant, [["", "none"], ...Object.entries(found.mutants).map(([value, words]) => [value, `${value}: ${words}`])], asked.mutant);
      offer(whose, [["", "steps of all nodes"], ...run.moments[0].nodes.map(({ id }) => [id, `steps of node ${id}`])], "");
      set(verdict, { class: `verdict ${found.violation ? "bad" : "good"}` });
      verdict.replaceChildren(found.violation ? `✕ A rule is broken: ${found.violation}.` : "✓ All rules held.", found.rule && ` The rule: ${found.rule}.`,
        isCut ? ` The run has ${count(found.total)} steps; here are the first ${count(run.steps.length)}.` : "", ...(found.violation && !isCut ? [button("Go there", () => go(run.steps.length - 1))] : []));
      facts.replaceChildren(...drawnBy(found).map(([name, value]) => fact(name, h("dd", null, String(value)))));
      text(command, `kraftlab sim --seed ${asked.seed}${asked.faults && ` --faults ${asked.faults}`}${asked.mutant && ` --mutant ${asked.mutant}`} --trace`);
      set(slider, { max: run.steps.length - 1 });
      for (const node of [details, player, pictures]) node.hidden = false;
    }
    async function load() {
      const key = JSON.stringify(asked);
      try {
        if (kept.key !== key) kept = { key, run: fold(await app.get("seed", asked)) };
      } catch (error) { text(set(verdict, { class: "verdict bad" }), error.message); return; }
      if (closed) return;
      run = kept.run;
      show();
      const node = Number(app.query.get("node") ?? -1);
      only = run.moments[0].nodes[node] ? node : null;
      whose.value = only ?? "";
      go(Number(app.query.get("step")) || 0);
    }
    const resized = new ResizeObserver(() => { if (run) draw(); });
    resized.observe(view);
    document.addEventListener("keydown", key);
    load();
    return { close() { closed = true; clearTimeout(timer); clearTimeout(saving); resized.disconnect(); document.removeEventListener("keydown", key); } };
  },
};
