// Brokers: their states, shares, and directories as cards; and one broker with its replicas, copies, configs, and actions.
import { h, keyed, text, absence, alert, bar, button, cut, factList, field, grid, row, section, table, mark, bytes, count, plural, rate, span, link, partitionLink, lastOf, sum, polled } from "./dom.js";
import { command } from "./actions.js";

const SILENT_MS = 5000, CUT = 200, CARDS = 60, BROKER = 4;
const STATES = ["active", "fenced", "shutting down", "silent", "unreachable directories", "offline directory", "cordoned"];
const SOURCES = { 2: "set for this broker", 3: "set for all brokers", 4: "server.properties" };

// What is known of a broker, from the parts of the state: [kind, shape and word, name in STATES] for each state it is in.
function known(app, broker) {
  const { disks, moves } = app.state, id = broker.broker_id, dirs = disks?.brokers[id]?.log_dirs ?? null;
  const running = moves?.running ?? [], incoming = moves?.incoming?.[id] ?? {};
  const states = [broker.is_fenced ? ["bad", "✕ fenced", "fenced"] : broker.in_controlled_shutdown ? ["unknown", "↓ shutting down", "shutting down"]
    : broker.silent_ms > SILENT_MS ? ["unknown", `… silent for ${span(broker.silent_ms)}`, "silent"] : ["good", "✓ active", "active"]];
  const offline = dirs?.filter((each) => each.error_code).length ?? 0, cordoned = dirs?.filter((each) => each.is_cordoned).length ?? 0;
  if (disks?.silent[id] && !broker.is_fenced) states.push(["bad", "? unreachable directories", "unreachable directories"]);
  if (offline) states.push(["bad", `✕ ${offline} of ${plural(dirs.length, "directory", "directories")} offline`, "offline directory"]);
  if (cordoned) states.push(["unknown", `⊘ ${cordoned === dirs.length ? "" : `${cordoned} of ${dirs.length} `}cordoned`, "cordoned"]);
  return {
    ...broker, id, dirs, states, incoming, silence: disks?.silent[id] ?? "",
    in: sum(running.flatMap((move) => move.progress.filter((each) => each.broker_id === id).map((each) => each.bytes_per_second))),
    out: sum(running.filter((move) => move.leader_id === id).map((move) => move.bytes_per_second)),
    used: sum((dirs ?? []).map((each) => (each.total_bytes ?? 0) - (each.usable_bytes ?? 0))),
  };
}

function all(app) {
  const found = (app.state.brokers?.brokers ?? []).map((each) => known(app, each)), active = found.filter((each) => !each.is_fenced).length || 1;
  const fair = { leads: sum(found.map((each) => each.leads)) / active, replicas: sum(found.map((each) => each.replicas)) / (found.length || 1) };
  return found.map((each) => ({ ...each, fair }));
}

// A card: the same facts in the list and on the page of one broker. `actions(directory)` returns buttons.
function card(app, id, actions = () => []) {
  const head = h("h2", null, actions.length ? `Broker ${id}` : link(`/brokers/${id}`, `Broker ${id}`)), states = h("p", { class: "states" });
  const [facts, cells] = factList(["rack", "epoch", "leaders", "replicas", "moves in", "moves out"]);
  const shares = ["leaders", "replicas"].map((name) => [name, h("span"), h("div")]);
  for (const [name, words, drawn] of shares) cells[name].replaceChildren(words, drawn);
  const dirs = h("ul", { class: "plain dirs" }), note = h("p", { class: "small" });
  const node = h("section", { "data-row": true, tabindex: "-1" }, head, states, facts, dirs, note,
    h("p", { class: "small" }, link(`/topics?view=partitions&broker=${id}`, `Partitions of broker ${id}`)));
  function fill(broker) {
    keyed(states, broker.states, ([, words]) => words, ([kind, words]) => mark(kind, words));
    text(cells.rack, broker.rack ?? "none");
    text(cells.epoch, broker.broker_epoch ?? "?");
    for (const [name, words, drawn] of shares) {
      const key = name === "leaders" ? "leads" : "replicas", fair = broker.fair[key], away = broker[key] - fair;
      text(words, `${count(broker[key])} (fair share${Math.round(Math.abs(away)) === 0 ? "" : ` ${away > 0 ? "+" : "−"}${count(Math.abs(Math.round(away)))}`})`);
      bar(drawn, `${name}: ${broker[key]}, fair share ${fair.toFixed(1)}`, [[broker[key] / (2 * fair || 1), "used"]]).classList.add("fair");
    }
    text(cells["moves in"], app.state.moves ? rate(broker.in) : "?");
    text(cells["moves out"], app.state.moves ? rate(broker.out) : "?");
    keyed(dirs, broker.dirs ?? [], (each) => `${each.log_dir} ${each.is_cordoned} ${each.error_code}`, (each) => h("li", null, h("b", { title: each.log_dir }, lastOf(each.log_dir)), h("span"), h("div"), actions(each, broker)), (row, each) => {
      const left = broker.incoming[each.log_dir] ?? 0, total = each.total_bytes || 1, used = total - (each.usable_bytes ?? 0);
      const words = each.error_code ? `✕ offline: ${each.error_message || "no reason was given"}`
        : each.total_bytes === null ? "size unknown" : `disk: ${bytes(used)} used${left ? `, ${bytes(left)} incoming` : ""}, ${bytes(each.usable_bytes)} free of ${bytes(total)}`;
      text(row.children[1], ` ${each.is_cordoned ? "⊘ cordoned, takes no new replicas · " : ""}${words}`).className = each.error_code ? "bad" : "";
      row.children[2].hidden = Boolean(each.error_code) || each.total_bytes === null;
      bar(row.children[2], `${lastOf(each.log_dir)}: ${words}`, [[used / total, "used"], [left / total, "incoming"]]);
    });
    text(note, broker.dirs ? "" : broker.is_fenced ? "Its directories are not asked for while it is fenced." : broker.silence ? `Its directories are unknown: ${broker.silence}` : "Its directories are not known yet.");
  }
  return { node, facts, fill };
}

const SORTS = { id: (each) => each.id, leaders: (each) => -each.leads, replicas: (each) => -each.replicas, "used space": (each) => -each.used, "moves in": (each) => -each.in };

function list(view, app) {
  const cards = new Map(), box = h("div", { class: "cards" }), total = h("span", { class: "note", role: "status" }), more = cut(CARDS, update);
  const rack = field(app, "rack", "Rack", update, [["", "all"]], { "data-filter": true }), state = field(app, "state", "State", update, [["", "all"], ...STATES]);
  const sort = field(app, "sort", "Sort by", update, [["", "id"], ...Object.keys(SORTS).slice(1)]);
  view.append(h("div", { class: "filters" }, rack, state, sort, total), box, more.node, left(app));
  function update() {
    const found = all(app), wantedRack = app.query.get("rack"), wantedState = app.query.get("state"), by = SORTS[app.query.get("sort")] ?? SORTS.id;
    rack.offer([["", "all"], ...[...new Set(found.map((each) => each.rack).filter(Boolean))].sort()]);
    const wanted = found.filter((each) => (!wantedRack || each.rack === wantedRack) && (!wantedState || each.states.some(([, , name]) => name === wantedState)));
    wanted.sort((one, other) => by(one) - by(other) || one.id - other.id);
    const brokers = plural(found.length, "broker");
    text(total, !app.state.brokers ? "Asking for the brokers …" : wanted.length === found.length ? brokers : `${count(wanted.length)} of ${brokers}`);
    keyed(box, more.of(wanted), (each) => each.id, (each) => { const made = card(app, each.id); cards.set(each.id, made); return made.node; }, (node, each) => cards.get(each.id).fill(each));
  }
  return { update };
}

// What a cluster of Apache Kafka cannot tell or do.
const left = (app) => (app.about.speaks_kafka ? h("p", null, "A cluster of Apache Kafka does not tell the silence of brokers, the bytes of moves, and kept copies. It cannot bring a directory online, write a snapshot on demand, or have a broker drained from here.") : "");

function one(view, app, id) {
  const kafka = app.about.speaks_kafka;
  let broker = null, dirs = [];
  const act = (name, request, title, words, node = null) => app.act(name, request, { node, title, button: words }).then(ask);
  const configure = (value, title) => {
    const config = { name: "cordoned.log.dirs", ...(value ? { config_operation: 0, value } : { config_operation: 1 }) };
    act("configure", { resources: [{ resource_type: BROKER, resource_name: String(id), configs: [config] }] }, title, value ? "Cordon" : "Uncordon");
  };
  const own = card(app, id, (each) => {
    const others = () => dirs.filter((dir) => dir.is_cordoned && dir.log_dir !== each.log_dir).map((dir) => dir.log_dir);
    const words = each.is_cordoned ? "Uncordon" : "Cordon", cordon = () => configure([...others(), ...(each.is_cordoned ? [] : [each.log_dir])].join(","), `${words} ${each.log_dir}`);
    return [button(words, cordon), each.error_code && !kafka ? button("Bring online", () => act("online", { log_dir: each.log_dir }, `Bring ${each.log_dir} online`, "Bring online", id)) : ""];
  });
  const unregister = () => act("unregister", { broker_id: id, ...(broker.broker_epoch > 0 ? { expected_broker_epoch: broker.broker_epoch } : {}) }, `Unregister broker ${id}`, "Unregister");
  const acts = h("div", { class: "tools", hidden: true }, button("Cordon all directories", () => configure("*", `Cordon broker ${id}`)), button("Uncordon all", () => configure("", `Uncordon broker ${id}`)),
    kafka ? "" : button("Snapshot", () => act("snapshot", {}, `Snapshot of broker ${id}`, "Write it", id)), button("Unregister", unregister, "danger"));
  const drained = h("div"), copies = h("ul", { class: "plain" }), configs = h("tbody"), reason = h("p", { class: "unknown" }), why = h("p", { class: "unknown" });
  const where = field(app, "dir", "Directory", draw, [["", "all"]], { "data-filter": true }), more = cut(CUT, draw), total = h("span", { class: "note" });
  const [addresses, peers] = factList(["endpoint", ...(kafka ? [] : ["peer endpoint", "last heartbeat"])]);
  own.facts.append(...addresses.children);
  own.node.append(acts);
  const CONFIGS = ["name", "~value", "source"], COLUMNS = ["partition", "directory", "#size", "#log end", "state", "move to"];
  const replicas = grid("Replicas of this broker", COLUMNS, (each) => `${each.topic}-${each.partition_index} ${each.log_dir}`, (each) => {
    const name = `${each.topic}-${each.partition_index}`, others = dirs.filter((dir) => dir.log_dir !== each.log_dir && !dir.error_code);
    const to = h("select", { "aria-label": `Move ${name} to a directory`, onchange: () => {
      const request = { dirs: [{ path: to.value, topics: [{ name: each.topic, partitions: [each.partition_index] }] }] };
      to.value = "";
      act("move-directory", request, `Move ${name} to another directory`, "Move", id);
    } }, h("option", { value: "" }, "…"), others.map((dir) => h("option", { value: dir.log_dir }, lastOf(dir.log_dir))));
    return [partitionLink(each.topic, each.partition_index), "", "", "", "", each.is_future_key || !others.length ? "–" : to];
  }, (each) => {
    const state = each.error ? `✕ ${each.error}` : each.is_future_key ? `→ from ${lastOf(each.source_log_dir)}: ${bytes(each.bytes_left)} left, ${rate(each.bytes_per_second)}`
      : each.offset_lag > 0 ? `… ${plural(each.offset_lag, "record")} behind` : "✓ current";
    return [, lastOf(each.log_dir), bytes(each.partition_size), count(each.log_end_offset < 0 ? null : each.log_end_offset), state];
  }, "tall");
  view.append(own.node,
    kafka ? "" : section("Drain", h("p", null, "Moves every replica to the least loaded brokers, and keeps the racks of each partition apart. The plan is shown first, and can be rolled back on the page of moves."), h("div", { class: "tools" }, button("Preview the plan", preview)), drained),
    section("Replicas, biggest first", h("div", { class: "filters" }, where, total), reason, replicas.node, more.node),
    kafka ? "" : section("Copies set aside", copies),
    section("Configs that differ from the defaults", why, table("Configs of this broker", CONFIGS, configs)), left(app));
  const lack = absence(view, "/brokers", "All brokers");

  function draw() {
    const wanted = app.query.get("dir");
    where.offer([["", "all"], ...dirs.map((each) => each.log_dir)]);
    const rows = dirs.filter((dir) => !wanted || dir.log_dir === wanted).flatMap((dir) => dir.replicas.map((each) => ({ ...each, log_dir: dir.log_dir }))).sort((one, other) => other.partition_size - one.partition_size);
    text(total, `${plural(rows.length, "replica")}, ${bytes(sum(rows.map((each) => each.partition_size)))}`);
    replicas.update(more.of(rows));
    const kept = dirs.flatMap((dir) => dir.kept_copies), paths = kept.map((each) => each.path), bare = dirs.flatMap((dir) => dir.strays).filter((path) => !paths.includes(path));
    keyed(copies, [...kept, ...bare, ...(kept.length + bare.length ? [] : [null])], (each) => each?.path ?? each, (each) => {
      if (!each) return h("li", null, dirs.length ? "None: no copy waits for a decision." : "Not known.");
      if (!each.path) return h("li", null, h("b", null, each), " set aside, since this broker should not have it. Delete it when nobody needs its records.");
      const name = `${each.topic_name}-${each.partition_index}`, end = each.log_end_offset === null ? "" : `, up to offset ${count(each.log_end_offset)}`;
      return h("li", null, h("b", null, name), ` ${bytes(each.size_bytes)}${end}, ${each.path}. `, each.doubt || (each.is_stray ? "Set aside: compare it with the log that is served, then promote or drop it." : "Kept, since the replica's own log may be on an offline disk."),
        ["promote", "drop"].map((what) => command(`kraftlab log-dirs --${what} ${each.path} --broker ${id} ${app.about.where}`)));
    });
  }
  function preview() {
    text(drained, "Asking for a plan …");
    app.get(`brokers/${id}/drain`).then(showPlan, (error) => drained.replaceChildren(text(alert(), error.message)));
  }
  function showPlan({ partitions, before, after }) {
    const sizes = new Map(dirs.flatMap((dir) => dir.replicas.map((each) => [`${each.topic}-${each.partition_index}`, each.partition_size])));
    const copied = (moves) => bytes(sum(moves.map((each) => sizes.get(`${each.topic}-${each.partition}`)))), most = Math.max(1, ...Object.values(before), ...Object.values(after));
    if (!partitions.length) { drained.replaceChildren(h("p", null, `Broker ${id} has no replicas, and none is on its way: nothing to move.`)); return; }
    const limit = h("input", { type: "number", min: "1", inputmode: "numeric", placeholder: "none" });
    const go = button("Drain", () => {
      const topics = Object.entries(Object.groupBy(partitions, (each) => each.topic)).map(([name, rows]) => ({ name, partitions: rows.map((each) => ({ partition_index: each.partition, replicas: { values: each.after } })) }));
      const throttle = limit.value ? { throttle: String(Math.round(limit.value * 2 ** 20)) } : {};
      app.act("reassign", { topics, queued: true, plan_id: `drain-${id}-${Date.now().toString(36)}`, reason: `drain broker ${id}`, ...throttle }, { title: `Drain broker ${id}`, button: "Drain" })
        .then((done) => { if (done) drained.replaceChildren(h("p", null, "The moves are queued. ", link("/moves", "Watch or cancel them, or roll the plan back"))); });
    }, "primary");
    const columns = ["broker", "rack", "#before", "#after", "#copied to it", "before, then after"];
    const rows = Object.keys(before).map((each) => row(columns, [each, app.state.brokers?.brokers.find((other) => String(other.broker_id) === each)?.rack ?? "none", count(before[each]), count(after[each]), copied(partitions.filter((move) => String(move.to) === each)),
      h("div", { class: "bars" }, Object.entries({ before, after }).map(([when, all]) => bar(h("div"), `broker ${each} ${when}: ${plural(all[each], "replica")}`, [[all[each] / most, "used"]])))]));
    drained.replaceChildren(h("p", null, `${plural(partitions.length, "replica moves", "replicas move")}, ${copied(partitions)} in all.`, broker?.dirs?.some((each) => !each.is_cordoned) ? " Cordon all directories first, so that new topics leave this broker out." : ""),
      table("Replicas of each broker before and after", columns, h("tbody", null, rows)),
      h("details", null, h("summary", null, `Partitions${partitions.length > CUT ? `, the first ${CUT}` : ""}`), h("ul", { class: "plain columns" }, partitions.slice(0, CUT).map((each) => h("li", null, `${each.topic}-${each.partition}: [${each.before.join(", ")}] → [${each.after.join(", ")}]`)))),
      h("div", { class: "tools" }, h("label", null, "At most, into each broker, MiB/s ", limit), go));
  }
  async function ask() {
    const found = await app.get("disks", { broker: id }).catch((error) => ({ brokers: {}, silent: { [id]: error.message } }));
    dirs = found.brokers[id]?.log_dirs ?? dirs;
    text(reason, found.silent[id] ? `${dirs.length ? "These are from before" : "Unknown"}: ${found.silent[id]}` : "");
    draw();
  }
  app.get(`brokers/${id}/configs`).then((found) => {
    configs.replaceChildren(...found.map((each) => row(CONFIGS, [each.name, each.is_sensitive ? "(hidden)" : each.value ?? "", SOURCES[each.config_source] ?? `source ${each.config_source}`])));
    if (!found.length) text(why, "None.");
  }, (error) => text(why, `Unknown: ${error.message}`));
  const close = polled(5000, ask);
  return { close, update() {
    broker = all(app).find((each) => each.id === id) ?? null;
    if (app.state.brokers) lack(broker ? null : `broker ${app.path[0]} now: it was never registered, or it was unregistered`);
    if (!broker) return;
    own.fill(broker);
    acts.hidden = false;
    text(peers.endpoint, `${broker.host}:${broker.port}`);
    if (!kafka) { text(peers["peer endpoint"], `${broker.peer_host}:${broker.peer_port}`); text(peers["last heartbeat"], broker.silent_ms === null ? "?" : `${span(broker.silent_ms)} ago`); }
  } };
}

export default { title: "Brokers", open: (view, app) => (app.path[0] ? one(view, app, Number(app.path[0])) : list(view, app)) };
