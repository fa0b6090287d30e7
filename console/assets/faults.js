// Faults by click: nodes × faults, links × links, any fault as a form with its command, what is in force, and the election beside it.
import { h, keyed, text, set, alert, button, offer, row, section, span, bytes, plural, table } from "./dom.js";
import { command, modal } from "./actions.js";
import { lanes } from "./live_lanes.js";

const DURATIONS = [[3000, "3 s"], [10000, "10 s"], [30000, "30 s"], [120000, "2 min"], ["", "until healed"]];
// What a click on a node gives, with its name in the heading; [order, heading, further fields]. Log directories add their own.
const NODE_FAULTS = [["kill", "kill"], ["pause", "pause"], ["power-loss", "power loss"], ["isolate", "isolate"], ["slow", "slow 200 ms", { delay_ms: 200, jitter_ms: 50 }],
  ["lossy", "lossy 20 %", { loss: 0.2 }], ["clock", "clock 3× fast", { rate: 3 }], ["fill-disk", "fill disk"]];
const LINK_FAULTS = [["cut", "cuts"], ["slow", "delays by 200 ms", { delay_ms: 200, jitter_ms: 50 }], ["lossy", "loses 20 % on", { loss: 0.2 }]];
// Fields of an order: [label, factor from what people type, default]; no factor: a box to tick.
const FIELDS = {
  delay_ms: ["delay, ms", 1, 200], jitter_ms: ["jitter, ms", 1, 0], loss: ["lost, %", 0.01, 20], duplicate: ["doubled, %", 0.01, 0], reorder: ["reordered, %", 0.01, 0],
  rate: ["rate of the clock, ×", 1, 3], jump_ms: ["jump, s", 1000, 30], number: ["only order #", 1, 0], directory: ["log directory", null, ""],
  one_way: ["one way"], reset: ["reset connections"], drop: ["lose waiting messages"],
};

export default {
  title: "Faults",
  open(view, app) {
    if (!app.about.allow_chaos) {
      view.append(section("No faults here", h("p", { class: "unknown" }, app.about.why_no_faults ?? "The console does not say why.")));
      return {};
    }
    let known = null, kind = "cut", asked = 0;
    const chosen = () => (app.query.get("for") === "healed" ? null : Number(app.query.get("for")) || 10000);
    const status = () => app.state.faults;
    const inForce = () => status()?.orders ?? [];

    // -- orders ------------------------------------------------------------------------------------------------------
    const failed = alert();
    const steps = h("ul", { class: "plain" });
    let later = [];
    async function give(order) {
      text(failed, "");
      try {
        const done = await app.post("faults", order);
        app.say(done.text);
        later = [...new Set([...later, ...(done.next_steps ?? [])])];
        update();
      } catch (error) { text(failed, error.message); }
    }
    const timed = (order) => ({ ...order, for_ms: chosen() });

    async function healAll() {
      if (document.querySelector("dialog[open]")) return;
      const said = await modal("Heal everything?", (close) => [
        h("p", null, `${plural(inForce().length, "fault is", "faults are")} in force. Killed nodes start, paused ones go on, and cut links deliver their waiting messages.`), command(`kraftlab cluster heal ${app.about.where}`),
        h("div", { class: "tools" }, button("Heal everything", () => close(true), "primary", { autofocus: true }), button("Cancel", () => close()))], "action");
      if (said) give({ order: "heal" });
    }
    const onKey = (event) => { if (event.key === "Escape" && inForce().length && !document.querySelector("dialog[open]")) { event.preventDefault(); healAll(); } };
    document.addEventListener("keydown", onKey);

    // -- the matrices ------------------------------------------------------------------------------------------------
    const cell = (label, onclick) => button("", onclick, "fault", { "data-cell": true, "aria-label": label });
    function show(node, name, words, what) {
      text(node, words).classList.toggle("on", Boolean(what));
      set(node, { "aria-pressed": String(Boolean(what)), "aria-label": what ? `${name}: ${words}; heal` : name, title: what || null });
    }
    const left = (order) => (order.left_ms === null ? "until healed" : span(order.left_ms));
    function arrows(event) {
      const at = event.target.closest("[data-cell]"), step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!at || !step) return;
      const rows = [...event.currentTarget.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("[data-cell]")]).filter((row) => row.length);
      const y = rows.findIndex((row) => row.includes(at)), x = rows[y].indexOf(at), row = rows[Math.min(Math.max(y + step[0], 0), rows.length - 1)];
      row[Math.min(Math.max(x + step[1], 0), row.length - 1)].focus();
      event.preventDefault();
    }

    const nodeBox = h("div"), linkBox = h("div"), link = h("select", { "aria-label": "Fault of a link" });
    offer(link, LINK_FAULTS.map(([name, words]) => [name, words]), LINK_FAULTS[0][0]);
    const nodeRows = h("tbody", { onkeydown: arrows }), linkRows = h("tbody", { onkeydown: arrows });
    let columns = [], cells = new Map(), linkCells = new Map();

    function build() {
      const dirs = Math.max(...known.nodes.map((node) => node.log_dirs));
      columns = [...NODE_FAULTS.filter(([name]) => name !== "power-loss" || known.own_disks),
        ...Array.from({ length: dirs }, (_, at) => ["fail-disk", `fail d${at}`, { directory: `d${at}` }])];
      const heads = ["node", "state", ...columns.map(([, heading]) => heading), "restart"];
      nodeBox.replaceChildren(table("Nodes and their faults", heads, nodeRows));
      nodeRows.replaceChildren(...known.nodes.map(({ name: node, log_dirs: dirs }) => row(heads, [node, "", ...columns.map(([order, heading, more = {}]) => {
        if (order === "fail-disk" && Number(more.directory.slice(1)) >= dirs) return "";
        const name = `${heading} ${node}`;
        const made = cell(name, () => { const now = holding(node, order, more); give(now ? { order: "heal", number: now.number } : timed({ order, names: [[node]], ...more })); });
        cells.set(made, { node, order, more, name });
        return made;
      }), button("restart", () => give({ order: "restart", names: [[node]] }), null, { "data-cell": true, "aria-label": `Restart ${node}` })])));
      const names = known.nodes.map((node) => node.name), short = (name) => name.replace("controller-", "c ").replace("broker-", "b ");
      linkBox.replaceChildren(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Links and their faults" }, h("table", { class: "grid" }, h("caption", { class: "aside" }, "Links: rows are sources, columns are targets"),
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "from ↓ to →"), names.map((name) => h("th", { scope: "col" }, short(name))))), linkRows)));
      linkRows.replaceChildren(...names.map((source) => h("tr", null, h("th", { scope: "row" }, short(source)), names.map((target) => {
        if (source === target) return h("td", null, "–");
        const made = cell(`${source} to ${target}`, () => {
          const [order, , more = {}] = LINK_FAULTS.find(([name]) => name === link.value), ends = { names: [[source], [target]], one_way: true };
          give(made.classList.contains("on") ? { order: "heal", ...ends } : timed({ order, ...ends, ...more }));
        });
        linkCells.set(`${source} ${target}`, made);
        return h("td", null, made);
      }))));
      offer(orderSelect, Object.keys(known.orders), kind);
      names_.replaceChildren(...known.names.map((name) => h("option", { value: name })));
      pick(kind);
    }

    const holding = (node, order, more) => inForce().findLast((each) => each.order === order && each.groups.length === 1 && each.groups[0].includes(node) && each.nodes.includes(node) && each.directory === (more.directory ?? ""));

    // -- the form ----------------------------------------------------------------------------------------------------
    const orderSelect = h("select", { onchange: () => pick(orderSelect.value) }), names_ = h("datalist", { id: "node-names" });
    const names = h("input", { list: "node-names", autocomplete: "off", spellcheck: "false", oninput: shown }), takes = h("small");
    const lasting = h("select", { "aria-label": "Duration of the fault", onchange: shown });
    const fields = h("span", { class: "filters" }), line = h("div");
    function pick(name, given = {}) {
      kind = orderSelect.value = name;
      const { fields: own, takes: how, stays } = known.orders[name];
      text(takes, how.replace("group of names", "node or more, by commas").replace("groups of names", "groups, with | between"));
      lasting.parentNode.hidden = !stays;
      fields.replaceChildren(...own.map((field) => {
        const [words, factor, usual] = FIELDS[field], value = given[field];
        if (factor === undefined) return h("label", { class: "tick" }, h("input", { type: "checkbox", name: field, checked: Boolean(value), onchange: shown }), words);
        return h("label", null, words, h("input", factor === null ? { name: field, value: value ?? usual, oninput: shown } : { type: "number", min: 0, step: "any", name: field, value: value === undefined ? usual : value / factor, oninput: shown }));
      }));
      shown();
    }
    function order() {
      const made = { order: kind, names: names.value.trim() ? names.value.split("|").map((group) => group.split(",").map((name) => name.trim()).filter(Boolean)) : [] };
      if (known.orders[kind].stays && lasting.value) made.for_ms = Number(lasting.value);
      for (const input of fields.querySelectorAll("input")) {
        const factor = FIELDS[input.name][1], value = input.type === "checkbox" ? input.checked : factor ? Number((Number(input.value) * factor).toPrecision(12)) : input.value.trim();
        if (value) made[input.name] = value;
      }
      return made;
    }
    async function shown() {
      const turn = ++asked;
      const made = await app.get("faults/command", { order: JSON.stringify(order()) }).catch((error) => ({ missing: error.message }));
      if (turn === asked) line.replaceChildren(!made.missing ? command(made.command) : names.value.trim() ? h("p", { class: "note" }, made.missing) : "");
    }
    const controllers = () => known.nodes.filter((node) => node.role === "controller").map((node) => node.name), half = () => { const all = controllers(), most = Math.floor(all.length / 2) + 1; return [all.slice(0, most), all.slice(most)]; };
    const STORIES = [
      ["Isolate the leader for 10 s", () => ["isolate", "leader", 10000]],
      ["Majority | minority", () => ["partition", half().map((group) => group.join(",")).join(" | "), 10000]],
      ["A slow link to one follower", () => { const led = app.state.brokers?.leader_id, follower = controllers().find((name) => name !== `controller-${led}`); return ["slow", `leader | ${follower}`, 30000, { delay_ms: 500, jitter_ms: 100 }]; }],
      ["Kill two of three: no quorum", () => ["kill", half()[0].join(","), 10000]],
    ];
    const stories = h("div", { class: "tools" }, STORIES.map(([title, made]) => button(title, () => { const [name, who, ms, more] = made(); names.value = who; lasting.value = ms; pick(name, more); go.focus(); })));
    const go = button("Inject", null, "primary");
    const form = h("form", { onsubmit: (event) => { event.preventDefault(); give(order()); } }, h("div", { class: "filters" }, h("label", null, "fault", orderSelect), h("label", null, "nodes ", takes, names), h("label", null, "for", lasting), fields), names_, line, h("div", { class: "tools" }, go));

    // -- the page ----------------------------------------------------------------------------------------------------
    const list = h("ul", { class: "plain" }), none = h("p", null, "Nothing is broken."), heal = button("Heal everything", healAll, "danger");
    const picture = lanes(app, () => 60);
    const durations = h("select", { onchange: () => { app.setQuery({ for: durations.value === "10000" ? null : durations.value || "healed" }); } });
    offer(durations, DURATIONS, String(chosen() ?? ""));
    offer(lasting, DURATIONS, "10000");
    view.append(
      section("In force", failed, none, list, steps, h("div", { class: "tools" }, heal, h("span", { class: "note" }, "or Esc"))),
      section("Nodes", h("div", { class: "tools from" }, h("label", null, "A click breaks for ", durations), h("span", { class: "note" }, "A second click heals. Arrow keys move.")), nodeBox),
      h("div", { class: "pair" }, section("Any fault", stories, form), section("Who follows whom", picture.node)),
      section("Links", h("div", { class: "tools from" }, h("label", null, "A click ", link), h("span", { class: "note" }, "the link, from row to column only, for the time above.")), linkBox));
    app.get("faults").then((found) => { known = found; build(); update(); }, (error) => text(failed, error.message));

    function update() {
      picture.update();
      const now = status(), fault = app.parts.faults?.fault, lead = `controller-${app.state.brokers?.leader_id}`;
      if (fault) text(failed, fault);
      none.hidden = !(heal.disabled = !inForce().length);
      keyed(list, inForce(), (each) => each.number, (each) => h("li", null, h("b", null, `#${each.number} `), h("span"), " ", h("small"), " ", button("Heal", () => give({ order: "heal", number: each.number }), null, { "aria-label": `Heal #${each.number}` })),
        (row, each) => { text(row.children[1], each.text); text(row.children[2], each.left_ms === null ? "until healed" : `for another ${span(each.left_ms)}`); });
      keyed(steps, later, (each) => each, (each) => h("li", { class: "unknown" }, each, " ", button("Done", () => { later = later.filter((line) => line !== each); update(); })));
      if (!now || !known) return;
      const states = new Map(now.nodes.map((node) => [node.name, node]));
      for (const { children: [{ textContent: name }, state] } of nodeRows.children) {
        const found = states.get(name);
        if (!found) continue;
        text(state, `${{ running: "✓", paused: "‖", full: "■" }[found.state] ?? "✕"} ${found.state}${name === lead && found.state === "running" ? " ★ leads" : ""}`);
        state.className = found.state === "running" ? "good" : "bad";
      }
      for (const [made, { node, order, more, name }] of cells) { const held = holding(node, order, more); show(made, name, held ? `${order} ${left(held)}` : "·", held?.text); }
      const broken = new Map(now.links.map((each) => [`${each.source} ${each.target}`, each]));
      for (const [ends, made] of linkCells) {
        const each = broken.get(ends), words = each && [each.cut && "cut", each.delay_ms || each.jitter_ms ? `slow ${span(each.delay_ms)}` : null, each.loss || each.duplicate || each.reorder ? `lossy ${Math.round(100 * each.loss)} %` : null].filter(Boolean);
        const waiting = each?.waiting_bytes ? `${bytes(each.waiting_bytes)} wait` : "";
        show(made, ends.replace(" ", " to "), words?.length ? [...words, waiting].join(" ") : waiting || "·", words?.length ? words.join(", ") : "");
      }
    }
    return { update, close() { document.removeEventListener("keydown", onKey); picture.close(); } };
  },
};
