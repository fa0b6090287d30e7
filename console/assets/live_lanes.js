// The last minutes of the quorum as lanes: one row per controller with what it says, elections, and the faults in force.
import "./lanes.js";
import { h, svg, set, text, clock } from "./dom.js";

const HEIGHT = 20, LEFT = 130;
const { drawLanes, heightOf, spanAt } = globalThis.kraftlabLanes;
const colourOf = (about, nodes) => (about === "down" ? "var(--faint)" : about === "" ? "var(--unknown)" : `var(--c${Math.max(0, nodes.indexOf(about)) % 8})`);

const KINDS = ["kill", "isolate", "slow", "pause", "lossy", "clock", "cut", "fill-disk", "partition", "power-loss"];
// The colour of a kind of fault, always the same: kinds of a test that no order has get one by their letters.
export function faultColour(kind) {
  const at = KINDS.indexOf(kind);
  return `f${(at < 0 ? [...kind].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) : at) % 8}`;
}
// The faults of the last minutes as bands for curves.
export const faultBands = (app) => (app.state.faults?.lanes ?? []).flatMap(({ spans }) => spans.map((each) => ({
  from_ms: each.begin_us / 1000, to_ms: each.end_us === null ? null : each.end_us / 1000, about: `${each.about} ${each.short}`, colour: faultColour(each.about) })));

// `seconds` returns the length of the window. Click or Enter on a lane shows the election in force there: `onElection(epoch)`.
// A span after a gap began when somebody looked again, and says nothing of an election.
const withElections = (lane) => ({ ...lane, spans: lane.spans.map((each, at) => ({ ...each, elected: each.text.startsWith("leads") && at > 0 && lane.spans[at - 1].end_us === each.begin_us })) });

export function lanes(app, seconds, onElection = () => {}) {
  const drawing = svg("svg", { role: "img", "aria-label": "Lanes of the quorum: nothing is known yet" });
  const tip = h("p", { class: "note", "aria-live": "off" }, "\u00a0");
  const node = h("div", null, h("div", { class: "chart" }, drawing), tip);
  let shown = [], options = null, timer = 0;

  function collect() {
    const since = (app.now() - seconds() * 1000) * 1000;
    const faults = (app.state.faults?.lanes ?? []).filter(({ spans }) => spans.some((each) => each.end_us === null || each.end_us > since));
    return [...faults.map((lane) => ({ ...lane, spans: lane.spans.map((each) => ({ ...each, fault: true })) })), ...(app.state.lanes ?? []).map(withElections)];
  }

  function draw() {
    const width = Math.max(node.clientWidth, 200), left = width < 600 ? 60 : LEFT;
    const to = app.now() * 1000, from = to - seconds() * 1e6;
    const part = app.parts.lanes, end = part && !part.fault ? to : (part?.as_of_ms ?? 0) * 1000;
    const nodes = (app.state.brokers?.controllers ?? []).map((each) => String(each.controller_id));
    shown = collect().map((lane) => (width < 600 ? { ...lane, label: lane.label.replace("controller ", "") } : lane));
    const step = (seconds() <= 60 ? 15 : seconds() <= 300 ? 60 : 180) * (width < 600 ? 2 : 1);
    const times = [];
    for (let at = Math.ceil(from / 1e6 / step) * step; at * 1e6 <= to; at += step) times.push([at * 1e6, clock(at * 1000)]);
    options = {
      from, to, left, width: width - left - 4, height: HEIGHT, end, times,
      look: (each) => each.fault ? { fill: `var(--${faultColour(each.about)})`, opacity: 0.75, hatched: true, words: [each.text, each.short] }
        : { fill: colourOf(each.about, nodes), opacity: each.text.startsWith("leads") ? 1 : 0.55, elected: each.elected, pale: !each.text.startsWith("leads"), hatched: each.about === "down", words: [each.text, each.short] },
    };
    drawLanes(drawing, shown, options);
    const height = heightOf(shown, options) + 20;
    set(drawing, { width, height, viewBox: `0 0 ${width} ${height}` });
    const now = shown.map((lane) => { const last = lane.spans.at(-1); return last && last.end_us === null ? `${lane.label} ${last.text}` : null; }).filter(Boolean);
    set(drawing, { "aria-label": now.length ? `Now: ${now.join("; ")}.` : "Lanes of the quorum: nobody answers." });
  }

  function found(event) {
    const box = drawing.getBoundingClientRect();
    return options && spanAt(shown, event.clientX - box.left, event.clientY - box.top, options);
  }
  drawing.addEventListener("mousemove", (event) => {
    const at = found(event);
    text(tip, at ? `${at.lane.label} ${at.span.text}, ${clock(at.span.begin_us / 1000)} to ${at.span.end_us === null ? "now" : clock(at.span.end_us / 1000)}` : "\u00a0");
  });
  drawing.addEventListener("click", (event) => { const epoch = /epoch (\d+)/.exec(found(event)?.span.text ?? ""); if (epoch) onElection(Number(epoch[1])); });
  const tick = () => { timer = setTimeout(tick, seconds() <= 60 ? 250 : 1000); if (!document.hidden) draw(); };
  tick();
  return { node, update: draw, close: () => clearTimeout(timer) };
}
