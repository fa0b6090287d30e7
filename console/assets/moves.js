// Moves: what runs with its progress and what holds it up, the queue, plans, and a form that shows before and after.
import { h, keyed, text, set, button, cut, factList, field, grid, section, link, path, partitionLink, brokerLink, bytes, rate, span, count, plural, moment, lastOf, sum } from "./dom.js";
import { form } from "./actions.js";
import { curve } from "./curves.js";
import { amount, replicas, startForm } from "./moves_start.js";

const SHOWN = 200, KEPT_MS = 60_000, DIRECTORY_LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second";
const NEXT = {
  STARTING: "Wait: it began just now.", COPYING: "Wait, or raise the throttle.", THROTTLED: "Wait, or raise the throttle.", OUT_OF_SYNC: "Wait: the leader is about to add it to the ISR.",
  FENCED: "Bring the broker back, or choose another target.", SHUTTING_DOWN: "Bring the broker back, or choose another target.", UNREGISTERED: "Bring the broker back, or choose another target.",
  DIRECTORY_OFFLINE: "Repair the disk, then bring the directory online.", NO_LEADER: "Bring an in-sync replica back: there is no leader to copy from.", NOT_FETCHING: "Read the broker's error; it reports every second.",
};
const MOVING = ["STARTING", "COPYING", "THROTTLED", "OUT_OF_SYNC"];
const SORTS = { partition: (each) => each.name, progress: (each) => each.share, left: (each) => each.left, rate: (each) => each.rate, "time to go": (each) => each.eta, since: (each) => each.since };
const HEADS = [["partition", "partition"], ["replicas"], ["progress", "progress", "left"], ["rate", "rate"], ["time to go", "time to go", "since"], ["held up by"], ["~plan, by, reason"], ["actions"]];

const nameOf = (each) => `${each.topic}-${each.partition_index}`;
const shareOf = (done, left) => (done === null || left === null ? null : done + left ? done / (done + left) : 1);
const total = (list, of) => sum(list.map(of));
const brokersOf = (m) => [...new Set([...m.replicas, ...m.target_replicas])];
const byName = new Intl.Collator("en", { numeric: true }).compare;
// The order of two values, unknown ones last in both directions.
const order = (a, b, sign) => (a === null || b === null ? (a === null) - (b === null) : sign * (typeof a === "string" ? byName(a, b) : a - b));

// Replace the children of a node when `key` is another.
function fresh(node, key, children) {
  if (node.known === key) return;
  node.known = key;
  node.replaceChildren(...children());
}

// Rows of both kinds: reassignments, and moves between log directories of one broker.
function rowsOf(moves) {
  const between = moves.running.map((m) => {
    const stuck = m.blockers.find((each) => !MOVING.includes(each.state)) ?? m.blockers[0];
    return { key: `${m.move_id} ${nameOf(m)}`, name: nameOf(m), topic: m.topic, index: m.partition_index, brokers: brokersOf(m), plan: m.plan_id, by: m.initiator, reason: m.reason,
      done: m.bytes_done, left: m.bytes_left, share: shareOf(m.bytes_done, m.bytes_left), rate: m.bytes_per_second, limit: m.limit, eta: m.eta_ms, since: m.started_ms || null, state: stuck?.state ?? "", stuck, move: m };
  });
  const inside = moves.between_directories.map(({ broker_id: broker, log_dir: path, replica: r, limit, eta_ms: eta }) => ({
    key: `${broker} ${nameOf(r)} ${path}`, name: nameOf(r), topic: r.topic, index: r.partition_index, brokers: [broker], plan: null, by: "", reason: "", broker, path, source: r.source_log_dir,
    done: r.partition_size, left: r.bytes_left, share: shareOf(r.partition_size, r.bytes_left), rate: r.bytes_per_second, limit, eta, since: r.started_ms, state: r.error ? "NOT_FETCHING" : "COPYING",
    stuck: { broker_id: broker, state: r.error ? "NOT_FETCHING" : "COPYING", text: r.error || "copies within the broker" } }));
  return [...between, ...inside];
}

function meter(label) {
  const node = h("div", { class: "meter", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"));
  return h("div", null, node, h("small"));
}
function measure(box, share, words) {
  const [bar, small] = box.children, percent = share === null ? null : Math.floor(100 * share);
  bar.firstChild.style.width = `${percent ?? 0}%`;
  const said = percent === null ? words || "unknown" : `${percent} %${words ? `, ${words}` : ""}`;
  text(small, said);
  set(bar, { "aria-valuenow": percent, "aria-valuetext": said });
}

// Ask for bytes per second; null if it was given up.
async function askRate(title, present) {
  const example = { autocomplete: "off", placeholder: "10 MiB" }, wrong = ({ limit }) => (Number.isInteger(amount(limit)) ? "" : "Give bytes per second, for example 10 MiB, 512 KiB or 0.");
  const given = await form(title, [["limit", "Bytes per second into each broker; 0 lifts the throttle", present || "", example]], { go: "See what this does", wrong });
  return given && amount(given.limit);
}

function topicsOf(moves, partition) {
  const topics = new Map();
  for (const each of moves) topics.set(each.topic, [...(topics.get(each.topic) ?? []), { partition_index: each.partition_index, ...partition(each) }]);
  return [...topics].map(([name, partitions]) => ({ name, partitions }));
}

export default {
  title: "Moves",
  open(view, app) {
    const plan = app.path[0] ?? null, kafka = app.about.speaks_kafka === true;
    const filter = (name) => (name === "plan" && plan !== null ? plan : app.query.get(name) ?? "");
    const holds = (each) => each.topic.includes(filter("topic")) && (!filter("broker") || each.brokers.includes(Number(filter("broker")))) && (!filter("plan") || each.plan === filter("plan")) && (!filter("state") || each.state === filter("state"));
    const queuedRow = (each) => ({ ...each, plan: each.plan_id, brokers: brokersOf(each), state: "QUEUED" });
    const hasFilter = () => ["topic", "broker", "plan", "state"].some(filter);
    let newest = 0, drawn = null, before = null;
    const ended = new Map();

    // -- what a person does ---------------------------------------------------------------------------------------------
    const running = () => rowsOf(app.state.moves).filter(holds);
    const waiting = () => app.state.moves.queued.map(queuedRow).filter(holds);
    const cancelled = (moves) => ({ topics: topicsOf(moves, (each) => ({ expected_replicas: { values: each.replicas } })) });
    function cancel(rows, queued = []) {
      if (rows.length === 1 && rows[0].path) return moveBack(rows[0]);
      const moves = [...rows.filter((each) => each.move).map((each) => each.move), ...queued];
      const what = moves.length === 1 ? `the move of ${nameOf(moves[0])}` : plural(moves.length, "move");
      return moves.length && app.act("reassign", cancelled(moves), { title: `Cancel ${what}`, button: "Cancel the move" });
    }
    const cancelAll = () => (hasFilter() || kafka ? cancel(running(), waiting()) : app.act("cancel-all", {}, { title: "Cancel every move", button: "Cancel all moves" }));
    const inDirectory = (each, path) => ({ dirs: [{ path, topics: [{ name: each.topic, partitions: [each.index] }] }] });
    const moveBack = (each) => app.act("move-directory", inDirectory(each, each.source), { node: each.broker, title: `Cancel the move of ${each.name} on broker ${each.broker}`, button: "Cancel the move" });
    async function throttle(rows) {
      const moves = rows.filter((each) => each.move).map((each) => each.move), inside = rows.find((each) => each.path);
      const title = moves.length === 1 ? `Throttle of ${nameOf(moves[0])}` : moves.length ? `Throttle of ${plural(moves.length, "move")}` : `Throttle of moves within broker ${inside?.broker}`;
      const limit = moves.length || inside ? await askRate(title, moves[0] ? moves[0].throttle : inside.limit) : null;
      if (limit === null) return;
      const config = { name: DIRECTORY_LIMIT, config_operation: limit ? 0 : 1, ...(limit ? { value: String(limit) } : {}) };
      if (!moves.length) app.act("configure", { resources: [{ resource_type: 4, resource_name: String(inside.broker), configs: [config] }] }, { title });
      else app.act("reassign", { topics: topicsOf(moves, (each) => ({ replicas: { values: each.target_replicas } })), throttle: limit }, { title, button: limit ? "Throttle" : "Lift the throttle" });
    }

    // -- the frame ------------------------------------------------------------------------------------------------------
    const [dl, facts] = factList(["running", "between directories", "queued", "bytes per second", "bytes left", "last one ends in"]);
    const note = h("p", { class: "note" }), none = h("p"), planBox = h("div"), flows = h("div", { class: "flows", role: "group", "aria-label": "No bytes move" }), curveBox = h("div"), formBox = h("div");
    const fields = Object.fromEntries(["topic", "broker", "plan", "state"].filter((name) => name !== "plan" || plan === null)
      .map((name) => [name, name === "topic" ? field(app, name, name, redraw, null, { "data-filter": true }) : field(app, name, name, redraw, [["", "any"]])]));
    const throttleButton = button("", () => throttle(running().filter((each) => each.move))), cancelButton = button("", cancelAll, "danger");
    const start = button("Start a move", () => { app.setQuery({ start: "?" }); openForm(); }, "primary");
    const sort = () => app.query.get("sort") ?? "";
    const sorter = (key) => button(key, () => { app.setQuery({ sort: sort() === key ? `-${key}` : sort() === `-${key}` ? null : key }); redraw(); }, "sort", { "data-key": key });
    const more = cut(SHOWN, redraw), waitingMore = cut(SHOWN, redraw);
    const actions = (each) => [button("Throttle", () => throttle([rowOf(each.key) ?? each])), button("Cancel", () => cancel([rowOf(each.key) ?? each]), "danger"), link(`/events?about=${encodeURIComponent(each.name)}`, "Events")];
    const list = grid("Running moves", HEADS.map(([name]) => name), (each) => each.key, (each) => [linkOf(each),
      each.move ? replicas(each.move.original_replicas.length ? each.move.original_replicas : each.move.replicas, each.move.target_replicas)
        : h("span", { class: "wrap" }, brokerLink(each.broker), `: ${lastOf(each.source)} → ${lastOf(each.path)}`),
      h("div", null, meter(each.name), each.move?.adding_replicas.length ? h("details", null, h("summary", null, "Replica by replica"), h("ul", { class: "plain" })) : ""),
      ...[1, 2].map(() => h("div", null, h("div"), h("small"))), "", "", actions(each)], fill);
    const heads = [...list.node.querySelectorAll("th")];
    HEADS.forEach(([, ...keys], at) => { if (keys.length) heads[at].replaceChildren(...keys.flatMap((key, place) => [place ? ", " : "", sorter(key)])); });
    const queue = grid("Queue", ["#place", "partition", "replicas", "#size", "~waits for", "#priority", "~plan, by, reason", "actions"], (each) => each.move_id + nameOf(each),
      (each) => ["", linkOf(each), replicas(each.replicas, each.target_replicas), "", "", "", "", button("Cancel", () => cancel([], [each]), "danger")], (each, cells) => {
        by(cells[6], each.plan_id, each.initiator, each.reason);
        return [String(each.position), , , bytes(each.size_bytes), each.waits_for, String(each.priority)];
      });
    const rollBack = (id) => app.act("roll-back", { rollback_plan_id: id }, { title: `Roll plan ${id} back`, button: "Roll back" });
    const forget = (id) => app.act("forget-plan", { plan_ids: [id] }, { title: `Forget plan ${id}`, button: "Forget" });
    const plans = grid("Plans", ["plan", "made", "~by, reason", "#partitions", "#running", "#queued", "actions"], (each) => each.plan_id, (each) => [
      link(path("moves", each.plan_id), each.plan_id), [moment(each.created_ms), h("small", { class: "below" })], "", "", "", "",
      [button("Roll back", () => rollBack(each.plan_id)), button("Forget", () => forget(each.plan_id))]], (each, cells) => {
      by(cells[2], null, each.initiator, each.reason);
      text(cells[1].lastChild, each.running || each.queued ? "" : "nothing of it moves now");
      return [, , , count(each.partitions), count(each.running), count(each.queued)];
    });
    const queueSection = section("Queue", queue.node, waitingMore.node), plansSection = section("Plans that can be rolled back", plans.node);
    view.append(
      h("section", null, planBox, dl, note, h("div", { class: "pair" }, curveBox, h("div", null, h("h2", null, "Bytes per second by broker"), flows))),
      formBox,
      section("Running", h("div", { class: "filters" }, Object.values(fields), start, throttleButton, cancelButton), none, list.node, more.node),
      queueSection, plansSection);
    const growth = kafka ? null : curve(curveBox, { title: "Bytes moved", unit: "bytes per second", seconds: 300, series: [{ label: "between brokers", colour: "c0" }, { label: "between directories", colour: "c1" }] });
    const openForm = () => { formBox.replaceChildren(); startForm(formBox, app, (to) => { app.setQuery({ start: null }); formBox.replaceChildren(); if (to) app.go(to); }); };
    if (app.query.has("start")) openForm();

    // -- rows ------------------------------------------------------------------------------------------------------------
    const by = (node, plan_, initiator, reason) => fresh(node, JSON.stringify([plan_, initiator, reason]),
      () => [h("span", null, plan_ ? [link(path("moves", plan_), plan_), " "] : "", initiator, reason ? h("small", null, ` ${reason}`) : "")]);
    const linkOf = (each) => partitionLink(each.topic, each.index ?? each.partition_index);
    const rowOf = (key) => rowsOf(app.state.moves).find((each) => each.key === key);

    function fill(each, [, , progress, speed, eta, held, origin, acts], row) {
      const over = each.ended;
      row.classList.toggle("over", Boolean(over));
      measure(progress.firstChild.firstChild, over?.done ? 1 : each.share, over ? over.words : each.share === null ? (kafka ? "not known of Apache Kafka" : "not known yet") : `${bytes(each.done)} of ${bytes(each.done + each.left)}, ${bytes(each.left)} left`);
      const waits = each.rate === 0 && each.limit && each.done && each.since && MOVING.includes(each.state); // for its throttle: the average says more
      text(speed.firstChild.firstChild, over ? "–" : each.rate === null ? "nothing is copied" : rate(waits ? (each.done / Math.max(1, app.now() - each.since)) * 1000 : each.rate));
      text(speed.firstChild.lastChild, over ? "" : each.limit === null ? "no limit" : `${waits ? "on average, " : ""}limit ${rate(each.limit)}`);
      text(eta.firstChild.firstChild, over || each.eta === null ? "–" : each.eta === 0 ? "now" : span(each.eta));
      text(eta.firstChild.lastChild, each.since === null ? "" : over ? `took ${span(over.at - each.since)}` : `since ${span(app.now() - each.since)}`);
      by(origin, each.plan, each.by, each.reason);
      fresh(held, over ? "" : `${each.stuck?.broker_id} ${each.stuck?.text} ${each.state}`, () => [over || !each.stuck ? "–" : blocked(each)]);
      for (const button of acts.querySelectorAll("button")) button.hidden = Boolean(over);
      const list = progress.querySelector("ul");
      if (list?.parentNode.open && !over) keyed(list, each.move.adding_replicas, (id) => id, (id) => h("li", null, brokerLink(id), meter(`${each.name} on broker ${id}`)), (item, id) => {
        const found = each.move.progress.find((one) => one.broker_id === id), why = each.move.blockers.find((one) => one.broker_id === id);
        measure(item.lastChild, found ? shareOf(found.bytes_done, found.bytes_left) : why ? null : 1, found ? [`${bytes(found.bytes_left)} left`, found.bytes_per_second === null ? why?.text : rate(found.bytes_per_second), found.eta_ms ? `${span(found.eta_ms)} to go` : ""].filter(Boolean).join(", ") : why ? why.text : "in sync");
      });
    }
    function blocked(each) {
      const { broker_id: id, state, text: why } = each.stuck, isMoving = MOVING.includes(state);
      const where = state === "NO_LEADER" ? linkOf(each) : brokerLink(id), [lead, ...rest] = why.split(`broker ${id}`);
      return h("div", { class: "wrap" }, h("span", { class: isMoving ? "" : "bad" }, isMoving ? "… " : "✕ ", state.toLowerCase().replaceAll("_", " "), ": "), rest.length ? [lead, where, rest.join(`broker ${id}`)] : [where, ` ${why}`], h("small", null, `. ${NEXT[state] ?? ""}`));
    }

    // Moves that ended while this page was open stay a minute, with the word of the cluster on how they ended.
    async function notice(rows) {
      const now = app.now(), present = new Set(rows.map((each) => each.key));
      for (const each of (before ?? []).filter((row) => !present.has(row.key))) ended.set(each.key, { ...each, ended: { at: now, words: "ended", done: false } });
      const gone = [...ended.values()].filter((each) => each.ended.at === now && each.move);
      before = rows;
      for (const [key, each] of ended) if (now - each.ended.at > KEPT_MS || present.has(key)) ended.delete(key);
      for (const topic of new Set(gone.map((each) => each.topic))) {
        const found = (await app.get("partitions", { topic, limit: 500 }).catch(() => ({ rows: [] }))).rows;
        for (const each of gone.filter((row) => row.topic === topic)) {
          const is = found.find((row) => row.partition_index === each.index);
          if (is) each.ended = { ...each.ended, done: String(is.replica_nodes) === String(each.move.target_replicas), words: String(is.replica_nodes) === String(each.move.target_replicas) ? "✓ moved" : `✕ not moved, replicas [${is.replica_nodes.join(", ")}]` };
        }
      }
    }

    function sorted(rows) {
      const key = sort().replace(/^-/, ""), of = SORTS[key] ?? SORTS.partition, sign = sort().startsWith("-") ? -1 : 1;
      heads.forEach((head, at) => set(head, { "aria-sort": HEADS[at].indexOf(key) > 0 ? (sign < 0 ? "descending" : "ascending") : null }));
      for (const node of view.querySelectorAll(".sort")) text(node, node.dataset.key + (node.dataset.key === key ? (sign < 0 ? " ▼" : " ▲") : ""));
      return rows.toSorted((a, b) => order(of(a), of(b), sign) || byName(a.name, b.name));
    }

    function drawFlows(rows) {
      const sums = new Map((app.state.brokers?.brokers ?? []).map((each) => [each.broker_id, { in: 0, out: 0 }]));
      const add = (id, way, value) => { if (id !== null && id !== undefined && value) { const sum = sums.get(id) ?? { in: 0, out: 0 }; sum[way] += value; sums.set(id, sum); } };
      for (const { move } of rows) for (const each of move?.progress ?? []) { add(each.broker_id, "in", each.bytes_per_second); add(move.leader_id, "out", each.bytes_per_second); }
      const list = [...sums].sort(([a], [b]) => a - b), most = Math.max(1, ...list.flatMap(([, sum]) => [sum.in, sum.out]));
      keyed(flows, list, ([id]) => id, ([id]) => h("div", null, h("small"), h("i", { class: "out" }), brokerLink(id), h("i", { class: "in" }), h("small")), (node, [, sum]) => {
        const [out, outBar, , inBar, into] = node.children;
        text(out, `out ${rate(sum.out)}`); text(into, `in ${rate(sum.in)}`);
        outBar.style.setProperty("--share", sum.out / most); inBar.style.setProperty("--share", sum.in / most);
      });
      set(flows, { "aria-label": list.map(([id, sum]) => `broker ${id}: ${rate(sum.in)} in, ${rate(sum.out)} out`).join("; ") || "No brokers are known" });
    }

    function redraw() {
      const moves = app.state.moves, fault = app.parts.moves?.fault;
      none.hidden = false;
      if (!moves) { text(none, fault ? `The cluster has not told its moves: ${fault}` : "Asking the cluster …"); return; }
      const rows = rowsOf(moves), brokers = new Set([...(app.state.brokers?.brokers ?? []).map((each) => each.broker_id), ...[...rows, ...moves.queued.map(queuedRow)].flatMap((each) => each.brokers)]);
      if (app.parts.moves !== drawn) { drawn = app.parts.moves; notice(rows); }
      const all = rows.filter(holds), here = sorted([...all, ...[...ended.values()].filter(holds)]), queued = waiting();
      const known = moves.plans.filter((each) => plan === null || each.plan_id === plan);
      const chosen = { broker: [...brokers].sort((a, b) => a - b), plan: [...rows, ...moves.queued.map(queuedRow)].map((each) => each.plan), state: rows.map((each) => each.state) };
      for (const [name, values] of Object.entries(chosen)) fields[name]?.offer([["", "any"], ...new Set(values.filter((value) => value !== null && value !== ""))]);
      list.update(more.of(here));
      text(none, here.length ? "" : rows.length ? "No running move matches the filters." : "Nothing moves.").hidden = here.length > 0;
      list.node.hidden = !here.length;
      const etas = all.map((each) => each.eta), inside = all.filter((each) => each.path);
      text(facts.running, count(all.length - inside.length)); text(facts["between directories"], count(inside.length)); text(facts.queued, count(queued.length));
      text(facts["bytes per second"], rate(total(all, (each) => each.rate))); text(facts["bytes left"], all.some((each) => each.left === null) ? `${bytes(total(all, (each) => each.left))}, and moves of unknown size` : bytes(total(all, (each) => each.left)));
      text(facts["last one ends in"], !all.length ? "–" : etas.includes(null) ? (all.every((each) => MOVING.includes(each.state)) ? "unknown" : "unknown: a move is held up") : span(Math.max(...etas)));
      text(note, kafka ? "Apache Kafka does not tell the progress, limits, time to go and blockers of moves, and has no queue and no plans." : fault ? `Not renewed: ${fault}` : moves.has_progress ? "" : "The active controller, which alone knows the progress, does not answer.");
      const between = all.length - inside.length;
      text(throttleButton, hasFilter() ? `Throttle ${between} shown` : "Throttle all"); text(cancelButton, hasFilter() ? `Cancel ${between + queued.length} shown` : "Cancel all");
      throttleButton.disabled = !between || kafka; cancelButton.disabled = !between && !queued.length;
      drawFlows(all);
      queue.update(waitingMore.of(queued));
      plans.update(known);
      queueSection.hidden = !queued.length;
      plansSection.hidden = !known.length;
      if (plan !== null) fresh(planBox, known.length, () => [h("h2", null, `Plan ${plan} `), h("p", null, known.length ? "Partitions of the plan that are not listed here have no move now. " : "It is not among the plans that can be rolled back. ", link("/moves", "All moves"))]);
      const at = app.parts.moves.as_of_ms;
      if (growth && at !== newest) growth.push(at, [total(rows, (each) => (each.move ? each.rate : 0)), total(rows, (each) => (each.path ? each.rate : 0))]);
      newest = at;
    }
    return { update() { if (!app.state.moves || app.parts.moves.as_of_ms !== newest) redraw(); }, close() { growth?.destroy(); } };
  },
};
