// The frame of every page: routes, the store of the cluster's state with its stream, the keyboard, and the heading.
import { h, keyed, text, set, button, clock, count, plural, section, link } from "./dom.js";
import { dialog, modal } from "./actions.js";

const PAGES = [
  ["quorum", "Quorum", "q"], ["brokers", "Brokers", "b"], ["topics", "Topics", "t"], ["moves", "Moves", "m"],
  ["time", "Time travel", "i"], ["events", "Events", "e"], ["groups", "Groups", "g"], ["faults", "Faults", "f"],
  ["runs", "Runs", "r"], ["sim", "Simulator", "s"],
];
const SAID_MS = 8000;
const OWN_DATA = ["runs", "sim", "login"];

async function asked(url, options) {
  let answer;
  try { answer = await fetch(url, options); } catch { throw new Error("the console does not answer; is its process running?"); }
  if (answer.status === 401 && app.page !== "login") { app.go(`/login?to=${encodeURIComponent(location.pathname + location.search)}`); throw new Error("log in first"); }
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const { name, code, message } = document.error ?? { name: `HTTP ${answer.status}`, message: "no reason was given" };
    throw Object.assign(new Error(`${name}${code === undefined ? "" : `(${code})`}: ${message}`), { isUnknown: answer.status === 404 || answer.status === 400 });
  }
  return document;
}

export const app = {
  page: "", path: [], query: new URLSearchParams(), about: {}, parts: {}, offset: null, connected: false, since: Date.now(), ahead: 0,
  // Newest value of each part, null until known. A part that failed keeps its last value; `app.parts[name].fault` says why.
  state: new Proxy({}, { get: (_, name) => app.parts[name]?.value ?? null }),
  now: () => Date.now() + app.ahead,
  get(path, params = {}) {
    const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const query = new URLSearchParams(given).toString();
    return asked(`/api/v1/${path}${query && `?${query}`}`);
  },
  post: (path, body) => asked(`/api/v1/${path}`, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", "x-kraftlab": "1" } }),
  go(url) { history.pushState(null, "", url); return route(); },
  setQuery(changes) {
    for (const [name, value] of Object.entries(changes)) if (value === null || value === "") app.query.delete(name); else app.query.set(name, value);
    const query = app.query.toString();
    history.replaceState(null, "", location.pathname + (query && `?${query}`));
  },
  // Say it aloud, and show it for some seconds.
  say(words) {
    text(document.getElementById("said"), words);
    clearTimeout(app.saying);
    app.saying = setTimeout(() => app.say(""), SAID_MS);
  },
  act: (name, request, options = {}) => dialog(app, name, request, options),
  // Called with each batch of the metadata log: {offset, epoch, at_ms, topics, brokers, leader}.
  onChange: null,
};

// -- the heading ------------------------------------------------------------------------------------------------------

const heading = h("h1", null, "kraftlab");
const live = h("p", { id: "live", class: "aside-live" });
const who = h("span", { class: "who" });
const nav = h("nav", { class: "inner sections", "aria-label": "Pages" });
const banner = h("div", { id: "banner", role: "alert", hidden: true });
document.querySelector(".top").append(
  h("div", { class: "inner" }, heading, live, who, button("Keys", help, "quiet", { id: "help", title: "Keys (?)" }), button("Dark", null, "quiet", { id: "theme" })),
  nav, banner);
const untold = h("p", { id: "untold", class: "inner note", hidden: true });
document.querySelector(".top").append(untold);
const KEYS = [...PAGES.map(([, title, key]) => [`g ${key}`, title]), ["/", "Filter"], ["j  k", "Next and previous row"], ["Enter", "Open the row"], ["?", "This list"], ["Esc", "Close"]];
function help() {
  modal("Keys", (close) => [h("dl", { class: "keys" }, KEYS.map(([keys, what]) => [h("dt", null, h("kbd", null, keys)), h("dd", null, what)])), button("Close", () => close())]);
}

function drawHeading() {
  const log = app.state.log, quorum = app.state.quorum;
  const absent = { faults: !app.about.allow_chaos, time: app.about.speaks_kafka, events: app.about.speaks_kafka, runs: !app.about.runs };
  keyed(nav, PAGES.filter(([name]) => !absent[name] && (!app.about.no_cluster || OWN_DATA.includes(name))),
    ([name]) => name, ([name, title]) => link(name === "runs" ? "/runs/" : `/${name}`, title), (node, [name]) => set(node, { "aria-current": name === app.page ? "page" : null }));
  const notes = [app.about.read_only && "Read only: this console changes nothing", app.about.missing?.length && `This cluster does not tell ${app.about.missing.join("; ")}`].filter(Boolean);
  untold.hidden = !notes.length;
  text(untold, notes.join(". "));
  const leader = quorum?.leader_id;
  const facts = quorum && [leader === null ? "no leader" : `leader ${leader}`, `epoch ${quorum.leader_epoch}`, log && `offset ${count(log.offset)}`].filter(Boolean).join(" · ");
  const newest = Math.max(0, ...Object.values(app.parts).map((part) => part.as_of_ms));
  const fault = app.parts.quorum?.fault || app.parts.brokers?.fault;
  text(live, !app.connected ? "" : newest ? `${fault ? "not live" : app.now() - newest < 5000 ? "live" : "catching up"}, as of ${clock(newest)}${facts ? ` · ${facts}` : ""}` : "live");
  const own = OWN_DATA.includes(app.page);
  banner.hidden = own || app.about.no_cluster || (app.connected && !fault);
  const offset = log?.offset ?? quorum?.high_watermark;
  const asOf = `as of ${clock(fault && app.connected ? app.parts.quorum?.as_of_ms || newest : newest || app.since)}${offset === undefined ? "" : `, offset ${count(offset)}`}`;
  const broken = (app.state.faults?.orders ?? []).filter((each) => each.ended_ms === null).map((each) => each.text).join("; ");
  text(banner, app.connected ? (fault ? `The cluster does not answer, ${asOf}: ${fault}${broken && `. In force on /faults: ${broken}`}` : "") : newest ? `Not connected to the console since ${clock(app.since)}; shown ${asOf}` : "Connecting to the console …");
  document.getElementById("main").classList.toggle("stale", !own && (!app.connected || Boolean(fault)) && newest > 0);
  text(who, "");
  if (app.about.must_log_in) who.append(app.about.user, " ", button("Log out", async () => { await app.post("logout", {}); location.assign("/login"); }, "quiet"));
}

// -- the stream ------------------------------------------------------------------------------------------------------

let source = null;
let drawing = 0;
let reopening = 0;
const forgotten = () => app.onChange?.({ reset: true, topics: [], brokers: [] });

function changed() { drawing ||= requestAnimationFrame(() => { drawing = 0; drawHeading(); current?.update?.(); notice(); }); }

// A part that has no value yet, as of a console that has just started, keeps the one that is shown.
function take(parts) {
  for (const [name, part] of Object.entries(parts)) app.parts[name] = part.as_of_ms || !app.parts[name] ? part : { ...app.parts[name], fault: part.fault };
  changed();
}

function open() {
  if (source || document.hidden || app.page === "login" || app.about.no_cluster) return;
  source = new EventSource("/api/v1/events");
  source.addEventListener("state", ({ data }) => {
    const { now_ms, parts } = JSON.parse(data);
    app.ahead = now_ms - Date.now();
    app.connected = true;
    const cluster = app.state.brokers?.cluster_id;
    take(parts);
    if (cluster && app.state.brokers.cluster_id !== cluster) forgotten(); // another console at this address
  });
  source.addEventListener("part", ({ data }) => take(JSON.parse(data)));
  source.addEventListener("tick", ({ data }) => {
    for (const [name, at] of Object.entries(JSON.parse(data).as_of_ms)) if (app.parts[name]) app.parts[name].as_of_ms = at;
    changed();
  });
  source.addEventListener("change", ({ data }) => app.onChange?.(JSON.parse(data)));
  source.addEventListener("reset", forgotten);
  source.addEventListener("error", () => {
    if (app.connected) { app.connected = false; app.since = Date.now(); }
    changed();
    if (source?.readyState === EventSource.CLOSED) { // refused: perhaps a login has ended
      close();
      clearTimeout(reopening);
      reopening = setTimeout(() => asked("/api/v1/about").then(open, () => { reopening = setTimeout(open, 1000); }), 500);
    }
  });
}

function close() { source?.close(); source = null; }

// A browser has six connections for each host, so that hidden pages give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { close(); if (app.connected) { app.connected = false; app.since = Date.now(); } } else open();
});

// -- what is said aloud: leaders, a lost quorum, moves that ended ------------------------------------------------------

const told = { leader: undefined, moves: null };

function notice() {
  const quorum = app.state.quorum, moves = app.state.moves;
  if (quorum && quorum.leader_id !== told.leader) {
    if (told.leader !== undefined) app.say(quorum.leader_id === null ? "The quorum has no leader" : `Controller ${quorum.leader_id} leads in epoch ${quorum.leader_epoch}`);
    told.leader = quorum.leader_id;
  }
  if (moves) {
    const running = new Map(moves.running.map((each) => [each.move_id, `${each.topic}-${each.partition_index}`]));
    const ended = told.moves ? [...told.moves].filter(([id]) => !running.has(id)).map(([, name]) => name) : [];
    if (ended.length) app.say(ended.length === 1 ? `The move of ${ended[0]} has ended` : `${plural(ended.length, "move")} have ended`);
    told.moves = running;
  }
}

// -- routes and keys ---------------------------------------------------------------------------------------------------

let current = null;

async function route() {
  current?.close?.();
  current = null;
  app.onChange = null;
  const [page = "", ...path] = location.pathname.slice(1).split("/");
  Object.assign(app, { page, path: path.map(decodeURIComponent), query: new URLSearchParams(location.search) });
  const view = document.getElementById("main");
  let found;
  if (app.about.no_cluster && !OWN_DATA.includes(page)) { view.replaceChildren(section("This console shows no cluster", h("p", null, "Start one with kraftlab up, and this console again."))); drawHeading(); return; }
  if (page !== "login" && (page === "runs" || !PAGES.some(([name]) => name === page))) {
    text(heading, "kraftlab");
    view.replaceChildren(section("There is no such page", h("p", null, page === "runs" ? "Start the console with --runs DIR, the store of kraftlab chaos, to see its runs." : "The pages are in the list above.")));
    drawHeading();
    return;
  }
  try { found = (await import(`./${page}.js`)).default; } catch { view.replaceChildren(section("This page cannot be loaded", h("p", null, "Load it again; the console may have been replaced."))); return; }
  if (app.page !== page) return;
  document.title = `${[...app.path].reverse().concat(found.title).join(" · ")} – kraftlab`;
  text(heading, found.title);
  view.replaceChildren();
  drawHeading();
  try {
    current = found.open(view, app);
    current?.update?.();
  } catch (error) {
    console.error(error);
    view.replaceChildren(section("This page failed", h("p", null, String(error))));
  }
  if (page === "login") close(); else open();
}

addEventListener("popstate", route);
document.addEventListener("click", (event) => {
  const target = event.target.closest?.("a[href^='/']");
  if (!target || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || target.target || target.pathname.startsWith("/runs/")) return;
  event.preventDefault();
  app.go(target.getAttribute("href")).then(() => { scrollTo(0, 0); document.getElementById("main").focus({ preventScroll: true }); });
});

let prefix = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, dialog")) return;
  const was = prefix;
  prefix = "";
  const rows = [...document.querySelectorAll("#main [data-row]")], at = rows.indexOf(document.activeElement?.closest?.("[data-row]"));
  if (was === "g") { const page = PAGES.find(([, , key]) => key === event.key); if (page) [...nav.children].find((each) => each.textContent === page[1])?.click(); }
  else if (event.key === "g") prefix = "g";
  else if (event.key === "?") help();
  else if (event.key === "/" && document.querySelector("#main [data-filter]")) { document.querySelector("#main [data-filter]").focus(); event.preventDefault(); }
  else if ((event.key === "j" || event.key === "k") && rows.length) rows[Math.max(0, Math.min(rows.length - 1, at + (event.key === "j" ? 1 : -1)))].focus();
  else if (event.key === "Enter" && at >= 0 && document.activeElement === rows[at]) rows[at].querySelector("a, button")?.click();
});

if (location.pathname !== "/login") app.about = await asked("/api/v1/about").catch((error) => { app.say(error.message); return {}; });
await route();
