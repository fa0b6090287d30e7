// The charts that share one time axis. Their data are in the element #scene; this script only draws them.
"use strict";
const kraftlab = (() => {
  const scene = JSON.parse(document.getElementById("scene").textContent);
  const [INDEX, LANE, BEGIN, END, F, OUTCOME, PROCESS, NODE, OFFSET, EPOCH, TEXT] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
  const OUTCOMES = { o: "ok", f: "fail", i: "info" };
  const GUTTER = innerWidth < 720 ? 108 : 132, RIGHT = 14, AXIS = 20;
  const ops = new Map(scene.ops.map((op) => [op[INDEX], op]));
  const span = Math.max(scene.span_us, 1);
  const view = { from: 0, to: span };
  const charts = [];
  let chosen = null;

  // --- elements ---------------------------------------------------------------------------------------------------------
  const draw = (name, attributes = {}, text = null) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) if (key === "style") element.style.cssText = value; else element.setAttribute(key, value);
    if (text !== null) element.textContent = text;
    return element;
  };
  const tip = document.getElementById("tip");
  const showTip = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const room = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(Math.min(event.clientX + 14, innerWidth - room.width - 8), 8)}px`;
    tip.style.top = `${event.clientY + 18 + room.height > innerHeight ? event.clientY - room.height - 10 : event.clientY + 18}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  const colour = (letter, place) => `var(--${letter}${((place % 8) + 8) % 8})`;
  const kindColour = (kind) => colour("f", scene.kinds.indexOf(kind));
  const nodesByColour = [...new Set([...scene.leaders.map(Number), ...scene.curves.map((curve) => curve.node).sort((a, b) => b - a), ...Object.keys(scene.node_names).map(Number)])];
  const nodeColour = (node) => colour("c", nodesByColour.indexOf(Number(node)));
  const leaderColour = (about) => (["", "up", "down"].includes(about) ? "var(--faint)" : nodeColour(about));
  const nodeName = (node) => scene.node_names[node] || `node ${node}`;

  // --- numbers ----------------------------------------------------------------------------------------------------------
  const time = (us) => {
    if (us < 1000) return `${us} µs`;
    if (us < 10000) return `${(us / 1000).toFixed(1)} ms`;
    if (us < 1e6) return `${Math.round(us / 1000)} ms`;
    return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
  };
  const tickTime = (us) => (us < 1000 ? `${us} µs` : us < 1e6 ? `${us / 1000} ms` : `${us / 1e6} s`);
  const moment = (us) => `${(us / 1e6).toFixed(view.to - view.from < 2e6 ? 4 : 2)} s`;
  const steps = (from, to, count) => {
    const raw = Math.max(to - from, 1e-9) / count, decade = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * decade).find((each) => each >= raw);
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-6; at += step) found.push(at);
    return found;
  };
  const describe = (op) => {
    const open = op[OUTCOME] === "i";
    const where = [op[NODE] >= 0 ? nodeName(op[NODE]) : "no node answered", op[OFFSET] >= 0 ? `offset ${op[OFFSET]}` : "", op[EPOCH] >= 0 ? `epoch ${op[EPOCH]}` : ""];
    return `${op[INDEX]} · ${op[TEXT]}\n${OUTCOMES[op[OUTCOME]]} · process ${op[PROCESS]} · ${where.filter(Boolean).join(", ")}\n` +
      `${moment(op[BEGIN])} to ${moment(op[END])}: ${open ? "given up after " : ""}${time(op[END] - op[BEGIN])}`;
  };

  // --- one chart ----------------------------------------------------------------------------------------------------------
  class Chart {
    constructor(id, height, paint, label) {
      this.host = document.getElementById(id);
      if (!this.host) return;
      [this.height, this.paint, this.label] = [height, paint, label];
      this.svg = draw("svg", { height: height + AXIS, tabindex: 0, role: "img", "aria-label": label });
      this.host.append(this.svg);
      this.hits = null;
      this.listen();
      charts.push(this);
    }
    get width() { return this.host.clientWidth - GUTTER - RIGHT; }
    x(us) { return GUTTER + ((us - view.from) / (view.to - view.from)) * this.width; }
    at(clientX) {
      const x = clientX - this.svg.getBoundingClientRect().left - GUTTER;
      return view.from + (Math.min(Math.max(x, 0), this.width) / this.width) * (view.to - view.from);
    }
    redraw() {
      this.svg.replaceChildren();
      const clip = `clip-${this.host.id}`;
      const frame = draw("clipPath", { id: clip });
      frame.append(draw("rect", { x: GUTTER, y: 0, width: Math.max(this.width, 1), height: this.height }));
      this.back = draw("g");
      this.plot = draw("g", { "clip-path": `url(#${clip})` });
      this.front = draw("g");
      this.cross = draw("line", { class: "cross", y1: 0, y2: this.height, visibility: "hidden" });
      this.brush = draw("rect", { class: "brush", y: 0, height: this.height, visibility: "hidden" });
      this.svg.append(frame, this.back, this.plot, this.front, this.cross, this.brush);
      this.times();
      if (this.host.id !== "chart-faults") this.shades();
      this.paint(this);
    }
    times() {
      for (const us of steps(view.from, view.to, Math.max(this.width / 110, 2))) {
        const x = this.x(us);
        this.back.append(draw("line", { class: "grid", x1: x, x2: x, y1: 0, y2: this.height }));
        this.front.append(draw("text", { x, y: this.height + 14, "text-anchor": "middle" }, `${+(us / 1e6).toFixed(6)} s`));
      }
      if (scene.healed_us > 0 && scene.healed_us >= view.from && scene.healed_us <= view.to) {
        const x = this.x(scene.healed_us);
        this.back.append(draw("line", { class: "healed", x1: x, x2: x, y1: 0, y2: this.height }));
        if (this.host.id === "chart-faults") this.front.append(draw("text", { x: x - 5, y: this.height - 3, "text-anchor": "end", style: "fill:var(--good)" }, "all healed"));
      }
    }
    shades() {
      const many = scene.faults.reduce((count, lane) => count + lane.spans.length, 0) > 40;
      for (const lane of scene.faults) for (const each of lane.spans) {
        const end = each.end_us === null ? each.begin_us : each.end_us;
        if (each.begin_us > view.to || end < view.from) continue;
        const x = Math.max(this.x(each.begin_us), GUTTER - 2), width = Math.min(this.x(end), GUTTER + this.width + 2) - x;
        const isInstant = width < 1;
        this.plot.append(draw("rect", { x, y: 0, width: Math.max(width, 1.5), height: this.height, fill: kindColour(each.about), opacity: isInstant ? (many ? 0.2 : 0.7) : many ? 0.07 : "var(--shade)" }));
      }
    }
    scale(ticks, y, label) {
      for (const tick of ticks) {
        this.back.append(draw("line", { class: "grid", x1: GUTTER, x2: GUTTER + this.width, y1: y(tick), y2: y(tick) }));
        this.back.append(draw("text", { x: GUTTER - 8, y: y(tick) + 4, "text-anchor": "end" }, label(tick)));
      }
    }
    listen() {
      let start = null;
      const svg = this.svg;
      const leave = () => { start = null; this.brush.setAttribute("visibility", "hidden"); };
      svg.addEventListener("pointerdown", (event) => { if (event.button === 0) start = event.clientX; });
      svg.addEventListener("pointermove", (event) => {
        crossAt(this.at(event.clientX));
        if (!(event.buttons & 1)) leave();
        if (start !== null && Math.abs(event.clientX - start) > 3) {
          if (!svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
          const [low, high] = [start, event.clientX].sort((a, b) => a - b).map((x) => this.x(this.at(x)));
          for (const [name, value] of Object.entries({ x: low, width: high - low, visibility: "visible" })) this.brush.setAttribute(name, value);
          return;
        }
        const hit = this.hits && this.hits(event);
        if (hit) showTip(event, hit.text); else hideTip();
      });
      svg.addEventListener("pointerup", (event) => {
        const begun = start;
        leave();
        if (begun === null) return;
        const [low, high] = [begun, event.clientX].sort((a, b) => a - b).map((x) => this.at(x));
        if (high > low && Math.abs(event.clientX - begun) > 3) zoom(low, high);
        else { const hit = this.hits && this.hits(event); if (hit && hit.op !== undefined) choose(hit.op); }
      });
      svg.addEventListener("pointercancel", leave);
      svg.addEventListener("pointerleave", () => { hideTip(); crossAt(null); });
      svg.addEventListener("dblclick", () => zoom(0, span));
      svg.addEventListener("keydown", (event) => {
        const act = KEYS[event.key];
        if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
      });
    }
  }

  // --- the window of time -----------------------------------------------------------------------------------------------
  let isAsked = false;
  const ask = () => { if (!isAsked) { isAsked = true; requestAnimationFrame(redraw); } };
  const redraw = () => {
    isAsked = false;
    for (const chart of charts) chart.redraw();
    const label = document.getElementById("window");
    if (label) label.textContent = `${moment(view.from)} to ${moment(view.to)}`;
  };
  const zoom = (from, to) => {
    const width = Math.min(Math.max(to - from, 50), span);
    view.from = Math.min(Math.max(from, 0), span - width);
    view.to = view.from + width;
    ask();
  };
  const closer = (factor) => {
    const middle = (view.from + view.to) / 2, half = ((view.to - view.from) * factor) / 2;
    zoom(middle - half, middle + half);
  };
  const move = (share) => { const by = (view.to - view.from) * share; zoom(view.from + by, view.to + by); };
  const KEYS = { "+": () => closer(0.5), "=": () => closer(0.5), "-": () => closer(2), 0: () => zoom(0, span), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25) };
  const crossAt = (us) => {
    for (const chart of charts) {
      const x = us === null ? 0 : chart.x(us);
      for (const name of ["x1", "x2"]) chart.cross.setAttribute(name, x);
      chart.cross.setAttribute("visibility", us === null ? "hidden" : "visible");
    }
  };

  // --- one operation ----------------------------------------------------------------------------------------------------
  const choose = (index) => {
    const op = ops.get(index), label = document.getElementById("operation");
    chosen = index;
    if (!op) { label.textContent = `Operation ${index} is not drawn here; it is in history.parquet.`; return; }
    label.textContent = describe(op).replaceAll("\n", " — ");
    if (op[BEGIN] < view.from || op[END] > view.to) {
      const margin = Math.max((op[END] - op[BEGIN]) * 4, span / 50);
      zoom(op[BEGIN] - margin, op[END] + margin);
    } else ask();
  };

  // --- lanes ------------------------------------------------------------------------------------------------------------
  const laneChart = (id, lanes, height, look, label, below = 0) => {
    const drawn = draw("g"), options = (chart) => ({ ...view, left: GUTTER, width: chart.width, height, end: span, look });
    const chart = new Chart(id, kraftlabLanes.heightOf(lanes, { height }) + below, (self) => {
      self.plot.after(drawn);
      kraftlabLanes.drawLanes(drawn, lanes, options(self));
    }, label);
    if (!chart.host) return;
    chart.hits = (event) => {
      const room = chart.svg.getBoundingClientRect();
      const found = kraftlabLanes.spanAt(lanes, event.clientX - room.left, event.clientY - room.top, options(chart));
      if (!found) return null;
      const { lane, span: each } = found;
      return { text: `${lane.label ? `${lane.label}: ` : ""}${each.text}\n${moment(each.begin_us)} to ${each.end_us === null ? "the end, never undone" : moment(each.end_us)}` };
    };
  };

  // --- curves -----------------------------------------------------------------------------------------------------------
  const legend = (id, rows, choice = false) => {
    const host = document.getElementById(id);
    if (!host) return;
    if (choice) host.classList.add("choice");
    for (const row of rows) {
      const entry = document.createElement(row.toggle ? "button" : "span");
      const mark = row.mark.length ? draw("svg", { width: 22, height: 12, viewBox: "0 0 22 12", "aria-hidden": "true" }) : "";
      if (mark) mark.append(...row.mark);
      entry.append(mark, row.text);
      if (row.toggle) {
        entry.type = "button";
        entry.setAttribute("aria-pressed", row.isOn());
        entry.addEventListener("click", () => { row.toggle(); for (const [each, one] of [...host.children].map((child, place) => [child, rows[place]])) each.setAttribute("aria-pressed", one.isOn()); ask(); });
      }
      host.append(entry);
    }
  };
  const line = (stroke, dash = "") => draw("path", { d: "M0,6H22", stroke, "stroke-width": 2.5, "stroke-dasharray": dash, fill: "none" });

  const offsetChart = () => {
    const shown = new Set(scene.curves.map((curve) => curve.node));
    legend("legend-curves", scene.curves.map(({ node }) => ({
      text: nodeName(node), mark: [line(nodeColour(node))], isOn: () => shown.has(node),
      toggle: () => (shown.has(node) ? shown.delete(node) : shown.add(node)),
    })));
    const chart = new Chart("chart-offsets", 170, (self) => {
      const visible = scene.curves.filter((curve) => shown.has(curve.node));
      const inside = visible.flatMap((curve) => curve.points.filter((point, place) => point[0] <= view.to && (place + 1 >= curve.points.length || curve.points[place + 1][0] >= view.from)));
      const values = inside.flatMap((point) => [point[1], point[2]]).filter((value) => value >= 0);
      const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), 0);
      if (!values.length) return;
      const y = (value) => self.height - 6 - ((value - low) / Math.max(high - low, 1)) * (self.height - 14);
      self.scale(steps(low, Math.max(high, low + 1), 4), y, (tick) => (Math.round(tick) === tick ? tick.toLocaleString("en") : ""));
      const x = (us) => Math.min(Math.max(self.x(us), GUTTER - 9), GUTTER + self.width + 9).toFixed(1);
      for (const curve of visible) for (const [column, dash, width] of [[1, "", 2], [2, "4 3", 1.3]]) {
        let path = "", before = -1;
        for (const point of curve.points) {
          if (point[column] >= 0) path += before >= 0 ? `H${x(point[0])}V${y(point[column]).toFixed(1)}` : `M${x(point[0])},${y(point[column]).toFixed(1)}`;
          else if (before >= 0) path += `H${x(point[0])}`;
          before = point[column];
        }
        self.plot.append(draw("path", { d: path, fill: "none", stroke: nodeColour(curve.node), "stroke-width": width, "stroke-dasharray": dash }));
      }
    }, "High watermark and end of the log of each node over time");
    if (chart.host) chart.hits = (event) => {
      const at = chart.at(event.clientX);
      const rows = scene.curves.filter((curve) => shown.has(curve.node)).map((curve) => {
        const point = curve.points.filter((each) => each[0] <= at).at(-1);
        return `${nodeName(curve.node)}: ${point && point[2] >= 0 ? `high watermark ${point[1]}, log end ${point[2]}` : "does not answer"}`;
      });
      return { text: [moment(at), ...rows].join("\n") };
    };
  };

  const clockChart = () => {
    legend("legend-clocks", scene.clocks.map(({ node }) => ({ text: nodeName(node), mark: [line(nodeColour(node))] })));
    const ahead = (ms) => (ms && Math.abs(ms) < 1000 ? `${ms} ms` : `${+(ms / 1000).toFixed(3)} s`);
    const values = scene.clocks.flatMap((clock) => clock.points.map((point) => point[1]));
    const low = values.reduce((a, b) => Math.min(a, b), 0), high = values.reduce((a, b) => Math.max(a, b), 0);
    const chart = new Chart("chart-clocks", 130, (self) => {
      const y = (ms) => self.height - 8 - ((ms - low) / Math.max(high - low, 1)) * (self.height - 16);
      self.scale(steps(low, high, 3), y, ahead);
      for (const clock of scene.clocks) {
        const d = clock.points.map((point) => `${self.x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join("L");
        self.plot.append(draw("path", { d: `M${d}`, fill: "none", stroke: nodeColour(clock.node), "stroke-width": 1.8 }));
      }
    }, "Drift of the clock of each node over time");
    if (chart.host) chart.hits = (event) => {
      const at = chart.at(event.clientX);
      const rows = scene.clocks.map((clock) => [clock.node, clock.points.filter((point) => point[0] <= at).at(-1)]);
      return { text: [moment(at), ...rows.map(([node, point]) => `${nodeName(node)}: ${point ? ahead(point[1]) : "not seen yet"}`)].join("\n") };
    };
  };

  // --- latencies --------------------------------------------------------------------------------------------------------
  const GLYPHS = [
    (x, y, r) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0z`,
    (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    (x, y, r) => `M${x},${y - r * 1.2}l${r * 1.2},${r * 2.1}h${-r * 2.4}z`,
    (x, y, r) => `M${x},${y - r * 1.4}l${r * 1.3},${r * 1.4}l${-r * 1.3},${r * 1.4}l${-r * 1.3},${-r * 1.4}z`,
    (x, y, r) => `M${x},${y + r * 1.2}l${r * 1.2},${-r * 2.1}h${-r * 2.4}z`,
    (x, y, r) => `M${x - r},${y - r * 0.4}h${r * 0.6}v${-r * 0.6}h${r * 0.8}v${r * 0.6}h${r * 0.6}v${r * 0.8}h${-r * 0.6}v${r * 0.6}h${-r * 0.8}v${-r * 0.6}h${-r * 0.6}z`,
    (x, y, r) => `M${x - r * 1.3},${y - r * 0.5}h${r * 2.6}v${r}h${-r * 2.6}z`,
    (x, y, r) => `M${x - r * 0.5},${y - r * 1.3}h${r}v${r * 2.6}h${-r}z`,
  ];
  const glyph = (f) => GLYPHS[f % GLYPHS.length];
  const logScale = (low, high, height) => {
    const from = Math.floor(Math.log10(Math.max(low, 1))), to = Math.max(Math.ceil(Math.log10(Math.max(high, 10))), from + 1);
    const y = (us) => height - 8 - ((Math.log10(Math.max(us, 1)) - from) / (to - from)) * (height - 16);
    return { y, ticks: Array.from({ length: to - from + 1 }, (_, place) => 10 ** (from + place)) };
  };
  const latencyChart = () => {
    const off = new Set();
    const toggled = (key) => ({ isOn: () => !off.has(key), toggle: () => (off.has(key) ? off.delete(key) : off.add(key)) });
    legend("legend-latency", [
      ...Object.entries(OUTCOMES).map(([letter, name]) => ({ text: name, mark: [draw("rect", { x: 4, y: 1, width: 14, height: 10, rx: 3, fill: `var(--${name})` })], ...toggled(letter) })),
      ...scene.functions.map((name, f) => ({ text: name, mark: [draw("path", { d: glyph(f)(11, 6, 4), fill: "var(--soft)" })], ...toggled(f) })),
    ]);
    const lows = scene.points.reduce((low, point) => Math.min(low, point[2]), Infinity), highs = scene.points.reduce((high, point) => Math.max(high, point[2]), 0);
    const named = new Set(scene.named);
    let visible = [];
    const chart = new Chart("chart-latency", 280, (self) => {
      const { y, ticks } = logScale(lows, highs, self.height);
      self.scale(ticks, y, tickTime);
      const paths = new Map();
      let rings = "";
      visible = [];
      for (const point of scene.points) {
        const [index, begin, took, f, outcome] = point;
        if (begin < view.from || begin > view.to || off.has(f) || off.has(outcome)) continue;
        const x = +self.x(begin).toFixed(1), top = +y(took).toFixed(1), key = `${outcome}${f}`;
        visible.push([x, top, point]);
        if (!paths.has(key)) paths.set(key, []);
        paths.get(key).push(glyph(f)(x, top, outcome === "o" ? 2.4 : 3.2));
        if (named.has(index)) rings += GLYPHS[0](x, top, 8);
      }
      for (const [key, parts] of [...paths].sort(([a], [b]) => "ofi".indexOf(a[0]) - "ofi".indexOf(b[0]))) {
        self.plot.append(draw("path", { d: parts.join(""), fill: `var(--${OUTCOMES[key[0]]})`, opacity: key[0] === "o" ? 0.6 : 0.9 }));
      }
      if (rings) self.plot.append(draw("path", { d: rings, class: "named" }));
      const op = visible.find(([, , point]) => point[0] === chosen);
      if (op) self.plot.append(draw("circle", { cx: op[0], cy: op[1], r: 9, class: "chosen" }));
    }, `Latency of ${scene.points.length} operations on a logarithmic scale`);
    if (chart.host) chart.hits = (event) => {
      const room = chart.svg.getBoundingClientRect(), px = event.clientX - room.left, py = event.clientY - room.top;
      let best = null, least = 144;
      for (const one of visible) { const away = (one[0] - px) ** 2 + (one[1] - py) ** 2; if (away < least) [best, least] = [one, away]; }
      if (!best) return null;
      const [index, begin, took, f, outcome] = best[2], op = ops.get(index);
      return { op: index, text: op ? describe(op) : `${index} · ${scene.functions[f]}\n${OUTCOMES[outcome]} at ${moment(begin)} after ${time(took)}` };
    };
  };

  const QUANTILES = [["50 %", "var(--c2)", ""], ["95 %", "var(--c4)", "6 3"], ["99 %", "var(--c1)", "3 3"], ["100 %", "var(--c6)", "1 3"]];
  const quantileChart = () => {
    let f = "";
    const names = ["", ...scene.functions];
    legend("legend-quantiles", names.map((name) => ({ text: name || "all", mark: name ? [draw("path", { d: glyph(scene.functions.indexOf(name))(11, 6, 4), fill: "var(--soft)" })] : [], isOn: () => f === name, toggle: () => { f = name; } })), true);
    const rows = scene.quantiles[""] || [];
    const chart = new Chart("chart-quantiles", 190, (self) => {
      if (!rows.length) return;
      const { y, ticks } = logScale(Math.min(...rows.map((row) => row[2][0])), Math.max(...rows.map((row) => row[2][3])), self.height);
      self.scale(ticks, y, tickTime);
      QUANTILES.forEach(([name, stroke, dash], place) => {
        let path = "", before = null;
        for (const row of scene.quantiles[f]) {
          const x = self.x(Math.min((row[0] + 0.5) * scene.width_us, span)).toFixed(1), top = y(row[2][place]).toFixed(1);
          path += `${before === row[0] - 1 ? "L" : "M"}${x},${top}`;
          self.plot.append(draw("circle", { cx: x, cy: top, r: 2.2, fill: stroke }));
          before = row[0];
        }
        self.plot.append(draw("path", { d: path, fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dash }));
        self.front.append(draw("text", { x: GUTTER + 8 + place * 52, y: 12, style: `fill:${stroke};font-weight:600` }, name));
      });
    }, "Quantiles of latency over time");
    if (chart.host) chart.hits = (event) => {
      const bin = Math.floor(chart.at(event.clientX) / scene.width_us), row = scene.quantiles[f].find((each) => each[0] === bin);
      return row && { text: `${moment(bin * scene.width_us)} to ${moment((bin + 1) * scene.width_us)}: ${row[1]} ok\n${QUANTILES.map(([name], place) => `${name}: ${time(row[2][place])}`).join("\n")}` };
    };
  };

  const rateChart = () => {
    const off = new Set(), key = (row) => `${row.f} ${row.outcome}`;
    const markOf = (row) => [line(`var(--${row.outcome})`), draw("path", { d: glyph(scene.functions.indexOf(row.f))(11, 6, 4), fill: `var(--${row.outcome})` })];
    legend("legend-rates", scene.rates.map((row) => ({ text: key(row), mark: markOf(row), isOn: () => !off.has(key(row)), toggle: () => (off.has(key(row)) ? off.delete(key(row)) : off.add(key(row))) })));
    const perSecond = 1e6 / scene.width_us;
    const chart = new Chart("chart-rates", 190, (self) => {
      const rows = scene.rates.filter((row) => !off.has(key(row)));
      const high = Math.max(...rows.map((row) => Math.max(...row.counts)), 1) * perSecond;
      const y = (value) => self.height - 6 - (value / high) * (self.height - 16);
      self.scale(steps(0, high, 4), y, (tick) => `${+tick.toFixed(3)}/s`);
      for (const row of rows) {
        const points = row.counts.map((count, bin) => [self.x(Math.min((bin + 0.5) * scene.width_us, span)).toFixed(1), y(count * perSecond).toFixed(1)]);
        self.plot.append(draw("path", { d: `M${points.map((point) => point.join(",")).join("L")}`, fill: "none", stroke: `var(--${row.outcome})`, "stroke-width": 1.8, opacity: 0.85 }));
        self.plot.append(draw("path", { d: points.map(([x, top]) => glyph(scene.functions.indexOf(row.f))(+x, +top, 3)).join(""), fill: `var(--${row.outcome})` }));
      }
    }, "Operations per second by function and outcome over time");
    if (chart.host) chart.hits = (event) => {
      const bin = Math.floor(chart.at(event.clientX) / scene.width_us);
      const rows = scene.rates.filter((row) => !off.has(key(row)) && row.counts[bin]).map((row) => `${key(row)}: ${+(row.counts[bin] * perSecond).toFixed(1)}/s`);
      return { text: [`${moment(bin * scene.width_us)} to ${moment((bin + 1) * scene.width_us)}`, ...rows].join("\n") };
    };
  };

  // --- processes --------------------------------------------------------------------------------------------------------
  // Text on a bar if it fits there, otherwise beside the bar if it fits before `until`; null if it fits in neither place.
  const barText = (text, x, width, until, y) => {
    const long = text.length * 6.6 + 8;
    if (long < width) return draw("text", { class: "inside", x: x + 5, y }, text);
    return x + width + long < until ? draw("text", { class: "ink", x: x + width + 4, y }, text) : null;
  };
  const timelineChart = () => {
    const lanes = Array.from({ length: scene.timeline_lanes }, () => []);
    for (const op of scene.ops) if (op[LANE] >= 0) lanes[op[LANE]].push(op);
    for (const lane of lanes) lane.sort((a, b) => a[BEGIN] - b[BEGIN]);
    const height = lanes.length > 30 ? 10 : 18, named = new Set(scene.named);
    const chart = new Chart("chart-timeline", lanes.length * (height + 3) + 4, (self) => {
      const paths = { o: [], f: [], i: [] };
      lanes.forEach((lane, number) => {
        const y = number * (height + 3) + 3;
        if (height > 12 || number % 2 === 0) self.back.append(draw("text", { class: "label", x: GUTTER - 10, y: y + height - 4 }, `lane ${number}`));
        lane.forEach((op, place) => {
          if (op[BEGIN] > view.to || op[END] < view.from) return;
          const x = Math.max(self.x(op[BEGIN]), GUTTER - 4), width = Math.max(Math.min(self.x(op[END]), GUTTER + self.width + 4) - x, 1);
          paths[op[OUTCOME]].push(`M${x.toFixed(1)},${y}h${width.toFixed(1)}v${height}h${(-width).toFixed(1)}z`);
          if (named.has(op[INDEX])) self.front.append(draw("rect", { x, y: y - 1, width: Math.max(width, 3), height: height + 2, class: "named" }));
          if (op[INDEX] === chosen) self.front.append(draw("rect", { x: x - 1, y: y - 2, width: width + 2, height: height + 4, class: "chosen" }));
          if (height > 12) {
            const until = Math.min(place + 1 < lane.length ? self.x(lane[place + 1][BEGIN]) : Infinity, GUTTER + self.width);
            const whole = barText(op[TEXT], x, width, until, y + height - 5), fits = Math.floor((width - 8) / 6.4);
            if (whole) self.front.append(whole);
            else if (width > 46) self.front.append(draw("text", { class: "inside", x: x + 4, y: y + height - 5 }, `${op[TEXT].slice(0, fits - 1)}…`));
          }
        });
      });
      for (const [letter, parts] of Object.entries(paths)) self.plot.append(draw("path", { d: parts.join(""), fill: `var(--${OUTCOMES[letter]})`, stroke: "var(--card)", "stroke-width": 0.5 }));
    }, "Operations of each process over time");
    if (chart.host) chart.hits = (event) => {
      const lane = lanes[Math.floor((event.clientY - chart.svg.getBoundingClientRect().top - 1.5) / (height + 3))];
      const at = chart.at(event.clientX), near = ((view.to - view.from) / chart.width) * 2;
      const op = lane && lane.find((each) => each[BEGIN] - near <= at && at <= each[END] + near);
      return op && { op: op[INDEX], text: describe(op) };
    };
  };

  // --- begin ------------------------------------------------------------------------------------------------------------
  laneChart("chart-faults", scene.faults, 22, (each) => ({ fill: kindColour(each.about) }), "Faults over time, by kind", 16);
  legend("legend-leaders", scene.leaders.map((leader) => ({ text: nodeName(leader), mark: [draw("rect", { x: 2, y: 1, width: 18, height: 10, rx: 3, fill: leaderColour(leader) })] })));
  laneChart("chart-nodes", scene.nodes, 20, (each) => ({ fill: leaderColour(each.about), opacity: each.about === "down" ? 0.3 : each.short.startsWith("★") ? 1 : 0.6 }), "Which leader each node knew, over time");
  offsetChart();
  clockChart();
  latencyChart();
  quantileChart();
  rateChart();
  timelineChart();
  const actions = { in: () => closer(0.5), out: () => closer(2), all: () => zoom(0, span) };
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", actions[button.dataset.zoom]);
  for (const link of document.querySelectorAll("[data-op]")) link.addEventListener("click", () => choose(Number(link.dataset.op)));
  document.getElementById("go").addEventListener("change", (event) => { if (event.target.value !== "" && event.target.reportValidity()) choose(Number(event.target.value)); });
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => {
    const selection = getSelection();
    selection.selectAllChildren(document.getElementById(button.dataset.copy));
    document.execCommand("copy");
    selection.removeAllRanges();
    button.textContent = "Copied";
  });
  for (const diagram of document.querySelectorAll("[data-from-end]")) diagram.scrollTop = diagram.scrollHeight;
  new ResizeObserver(ask).observe(document.getElementById("main"));
  redraw();
  return { scene, ops, draw, showTip, hideTip, describe, choose, nodeColour, kindColour, NODE, OFFSET, EPOCH };
})();
