"use strict";
(() => {
  const COLOURS = [2, 5, 0, 4, 3, 6, 7, 1, 8, 9];
  const SHAPES = 8;
  const CURVES = 12;
  const MOST_POINTS = 3000;
  const NEAR_PX = 24;
  const AT_ONCE = 50;
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const { columns, measures, asked, parts, told } = data;
  const dimensions = Object.keys(asked);
  const count = columns.search.length;
  const every = Array.from({ length: count }, (_, row) => row);
  const best = every.filter((row) => columns.rank[row] === 1);
  const value = (name, row) => asked[name].values[asked[name].at[columns.search[row] - 1]];
  const measureOf = Object.fromEntries(measures.map((measure) => [measure.key, measure]));
  const figure = (number) =>
    number === null ? "" : Math.abs(number) >= 100 ? Math.round(number).toLocaleString("en") : String(+number.toPrecision(3));
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
  const tick = (number) => (number >= 1e4 ? compact.format(number) : figure(number));
  const element = (name, content = "", attributes = {}) => {
    const made = document.createElement(name);
    made.append(content);
    Object.entries(attributes).forEach(([key, text]) => made.setAttribute(key, text));
    return made;
  };
  const svg = (name, attributes = {}, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, one]) => made.setAttribute(key, one));
    made.textContent = text;
    return made;
  };

  // Filters: rows of the chosen searches whose strategy has every word.
  const form = byId("filter");
  const selects = [...form.querySelectorAll("select[data-of]")];
  const names = columns.strategy.map((text) => text.toLowerCase().split(" "));
  let chosen = every;
  let sorted = { key: null, more: false };
  let page = 0;
  const choose = () => {
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = selects.filter((select) => select.value).map((select) => [asked[select.dataset.of], Number(select.value)]);
    const clean = byId("clean").checked;
    chosen = every.filter(
      (row) =>
        wanted.every(([of, at]) => of.at[columns.search[row] - 1] === at) &&
        words.every((word) => names[row].some((name) => name.startsWith(word))) &&
        !(clean && columns.marks[row].includes(data.tight))
    );
    page = 0;
    drawCurves();
    drawFront();
    drawTable();
  };

  // Figures: symbols on two axes with numbers; pointing or arrow keys name one, Enter or a double click opens its row.
  const range = (numbers, log) => {
    let [low, high] = [Infinity, -Infinity];
    numbers.forEach((one) => ([low, high] = [Math.min(low, one), Math.max(high, one)]));
    if (log) {
      const margin = high > low ? (high / low) ** 0.05 : 1.5;
      return [low / margin, high * margin];
    }
    const margin = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
    return [Math.max(0, low - margin), high + margin];
  };
  const ticks = (low, high) => {
    const unit = 10 ** Math.floor(Math.log10((high - low) / 6));
    const step = [1, 2, 2.5, 5, 10].map((one) => one * unit).find((one) => one >= ((high - low) / 6) * 0.999);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high; at += 1) {
      found.push(at * step);
    }
    return found;
  };
  const logTicks = (low, high, digits) => {
    const found = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade += 1) {
      digits.forEach((digit) => found.push(digit * 10 ** decade));
    }
    const inside = found.filter((one) => low <= one && one <= high);
    return inside.length < 2 ? ticks(low, high) : inside.length > 9 ? logTicks(low, high, [1]).slice(0, 12) : inside;
  };
  const place = (one, [low, high], log) =>
    100 * (log ? Math.log(one / low) / Math.log(high / low) : (one - low) / (high - low));
  const draw = (id, points, { x, y, lines, logY, say }) => {
    const plot = byId(id);
    const [xs, ys] = [range(points.map((point) => point.x), true), range(points.map((point) => point.y), logY)];
    const grid = svg("g", { class: "grid", "aria-hidden": "true" });
    const xTicks = x === "GPUs" ? [...new Set(points.map((point) => point.x))].sort((a, b) => a - b) : logTicks(...xs, [1, 2, 5]);
    const every = Math.ceil(xTicks.length / Math.max(3, plot.clientWidth / 70));
    xTicks.filter((_, at) => at % every === 0).forEach((one) => {
      const at = `${place(one, xs, true)}%`;
      grid.append(svg("line", { x1: at, x2: at, y1: "0", y2: "100%" }), svg("text", { x: at, y: "100%", dy: "18", "text-anchor": "middle" }, tick(one)));
    });
    (logY ? logTicks(...ys, [1, 2, 5]) : ticks(...ys)).forEach((one) => {
      const at = `${100 - place(one, ys, logY)}%`;
      grid.append(svg("line", { x1: "0", x2: "100%", y1: at, y2: at }), svg("text", { x: "0", dx: "-8", y: at, dy: "4", "text-anchor": "end" }, tick(one)));
    });
    points.forEach((point) => ([point.across, point.up] = [place(point.x, xs, true), 100 - place(point.y, ys, logY)]));
    const joins = svg("g", { class: "curve" });
    lines.forEach(({ line, kind, front }) =>
      line.slice(1).forEach((point, at) =>
        joins.append(
          svg("line", {
            x1: `${line[at].across}%`, y1: `${line[at].up}%`, x2: `${point.across}%`, y2: `${point.up}%`,
            class: front ? "right" : "join", style: front ? "" : `stroke: var(--c${COLOURS[kind % COLOURS.length]})`,
          })
        )
      )
    );
    const marks = svg("g");
    [...points].reverse().forEach((point) => marks.append(svg("use", { ...symbol(point.kind), x: `${point.across}%`, y: `${point.up}%` })));
    const ring = svg("path", { d: "M-8,0a8,8 0 1,0 16,0a8,8 0 1,0 -16,0z", class: "ring", visibility: "hidden" });
    plot.replaceChildren(grid, joins, marks, ring);
    [byId(`${id}-x`).textContent, byId(`${id}-y`).textContent] = [x, y];
    byId(`${id}-say`).textContent = say;
    pointAt(plot, points, ring);
  };
  const symbol = (kind) => ({ href: `#s${kind % SHAPES}`, class: `pt c${COLOURS[kind % COLOURS.length]}` });
  const pointAt = (plot, points, ring) => {
    const tip = plot.parentElement.querySelector(".tip");
    let now = -1;
    const show = (at) => {
      now = at;
      tip.hidden = at < 0;
      ring.setAttribute("visibility", at < 0 ? "hidden" : "visible");
      if (at < 0) {
        return;
      }
      const { row, across, up } = points[at];
      const figures = measures.filter(({ key }) => columns[key][row] !== null);
      tip.replaceChildren(
        element("strong", dimensions.map((name) => value(name, row)).join(", ")),
        element("code", columns.strategy[row]),
        element("span", figures.map(({ key, title }) => `${title}: ${figure(columns[key][row])}`).join(", "))
      );
      const box = plot.getBoundingClientRect();
      const [x, y] = [(across / 100) * box.width, (up / 100) * box.height];
      ring.setAttribute("transform", `translate(${x} ${y})`);
      tip.style.left = `${Math.min(Math.max(x - tip.offsetWidth / 2, -40), box.width - tip.offsetWidth + 8)}px`;
      tip.style.top = `${y > tip.offsetHeight + 16 ? y - tip.offsetHeight - 14 : y + 14}px`;
    };
    const nearest = (event) => {
      const box = plot.getBoundingClientRect();
      let [found, least] = [-1, NEAR_PX * NEAR_PX];
      points.forEach(({ across, up }, at) => {
        const apart = ((across / 100) * box.width - event.clientX + box.left) ** 2 + ((up / 100) * box.height - event.clientY + box.top) ** 2;
        [found, least] = apart < least ? [at, apart] : [found, least];
      });
      return found;
    };
    plot.onpointermove = plot.onpointerdown = (event) => show(nearest(event));
    plot.onpointerleave = (event) => event.pointerType === "mouse" && show(-1);
    plot.onclick = (event) => event.detail === 2 && nearest(event) >= 0 && goTo(points[nearest(event)].row);
    plot.onblur = () => show(-1);
    plot.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step && points[now + step]) {
        show(now + step);
      } else if (event.key === "Enter" && now >= 0) {
        goTo(points[now].row);
      } else if (event.key !== "Escape") {
        return;
      } else {
        show(-1);
      }
      event.preventDefault();
    };
  };

  // Series: rows that differ in what tells searches apart, among those that are chosen.
  const seriesOf = (rows) => {
    const differ = dimensions.filter((name) => new Set(rows.map((row) => value(name, row))).size > 1);
    const series = new Map();
    rows.forEach((row) => {
      const name = differ.map((one) => value(one, row)).join(", ") || value("model", row);
      series.has(name) ? series.get(name).push(row) : series.set(name, [row]);
    });
    return series;
  };
  const legend = (id, kept) =>
    byId(id).replaceChildren(
      ...kept.map((name, kind) => {
        const item = element("li");
        const key = svg("svg", { class: "key" });
        key.append(svg("use", symbol(kind)));
        item.append(key, ` ${name}`);
        return item;
      })
    );
  const better = (measure, one, other) => (measure.better === "more" ? one > other : one < other);
  const leading = (series, measure) => {
    const ends = [...series].map(([name, rows]) => {
      const numbers = rows.map((row) => columns[measure.key][row]).filter((one) => one !== null);
      return [name, numbers.reduce((kept, one) => (better(measure, one, kept) ? one : kept), numbers[0] ?? null)];
    });
    const known = ends.filter(([, end]) => end !== null);
    known.sort(([, a], [, b]) => (measure.better === "more" ? b - a : a - b));
    return known.slice(0, CURVES).map(([name]) => name);
  };
  const few = (kept, series) => (kept.length < series.size ? `The best ${kept.length} of ${series.size} curves; filter for others.` : "");
  const drawCurves = () => {
    const measure = measureOf[byId("measure").value];
    const series = seriesOf(chosen);
    const kept = leading(series, measure);
    const lines = kept.map((name, kind) => {
      const ends = new Map();
      series.get(name).forEach((row) => {
        const [gpus, one] = [columns.gpus[row], columns[measure.key][row]];
        if (one !== null && (!ends.has(gpus) || better(measure, one, ends.get(gpus).y))) {
          ends.set(gpus, { row, kind, x: gpus, y: one });
        }
      });
      return { kind, line: [...ends.values()].sort((a, b) => a.x - b.x) };
    });
    const points = lines.flatMap(({ line }) => line);
    const [low, high] = points.reduce(([least, most], { y }) => [Math.min(least, y), Math.max(most, y)], [Infinity, 0]);
    const logY = low > 0 && high / low > 8;
    legend("curves-legend", kept);
    byId("curves-none").hidden = points.length > 0;
    byId("curves-plot").hidden = !points.length;
    points.length && draw("curves", points, { x: "GPUs", y: measure.meaning, lines, logY, say: few(kept, series) });
  };
  const drawFront = () => {
    const { time, cost } = data.front;
    const at = (name, row) => (name === "hours_unit" ? 1e9 / columns.rate[row] / 3600 : name === "gpu_hours_unit" ? (1e6 * columns.gpus[row]) / columns.rate[row] / 3600 : columns[name][row]);
    let rows = chosen.filter((row) => columns.rank[row] === 1 && at(time.key, row) !== null && at(cost.key, row) !== null);
    const series = seriesOf(rows);
    const kept = leading(series, measureOf.rate);
    const kinds = new Map(kept.map((name, kind) => [name, kind]));
    const groups = new Map();
    const points = [];
    series.forEach((own, name) =>
      own.forEach((row) => {
        if (kinds.has(name)) {
          const point = { row, kind: kinds.get(name), x: at(time.key, row), y: at(cost.key, row) };
          const group = [value("model", row), asked.workload ? value("workload", row) : ""].join();
          groups.has(group) ? groups.get(group).push(point) : groups.set(group, [point]);
          points.push(point);
        }
      })
    );
    const lines = [...groups.values()].map((group) => {
      let least = Infinity;
      const line = group.sort((a, b) => a.x - b.x || a.y - b.y).filter((point) => point.y < least && ((least = point.y), true));
      return { line, front: true };
    });
    const onFront = new Set(lines.flatMap(({ line }) => line));
    const share = Math.ceil(points.length / MOST_POINTS);
    const shown = points.filter((point, place) => onFront.has(point) || place % share === 0);
    const thinned = share > 1 ? ` ${shown.length.toLocaleString("en")} of ${points.length.toLocaleString("en")} points are drawn.` : "";
    legend("front-legend", kept);
    byId("front-none").hidden = shown.length > 0;
    byId("front-plot").hidden = !shown.length;
    shown.length && draw("front", shown, { x: time.title, y: cost.title, lines, logY: true, say: few(kept, series) + thinned });
  };

  // The table: a piece of the rows at a time.
  const body = byId("board").tBodies[0];
  const heads = [...byId("board").tHead.rows[0].cells];
  const titles = heads.map((head) => head.textContent);
  let shown = [];
  let opened = null;
  const ordered = () => {
    const rows = byId("all").checked ? chosen : chosen.filter((row) => columns.rank[row] === 1);
    if (sorted.key === null) {
      return rows;
    }
    const sign = sorted.more ? -1 : 1;
    const natural = new Intl.Collator("en", { numeric: true });
    const key = sorted.key in columns ? (row) => columns[sorted.key][row] : (row) => value(sorted.key, row);
    return rows
      .map((row, at) => [key(row), at, row])
      .sort(([a, i], [b, j]) => (a === null) - (b === null) || sign * (typeof a === "number" ? a - b : natural.compare(a, b)) || i - j)
      .map((item) => item[2]);
  };
  const drawTable = () => {
    shown = ordered();
    const from = page * AT_ONCE;
    opened = null;
    body.replaceChildren(...shown.slice(from, from + AT_ONCE).map(lineOf));
    byId("shown").textContent = shown.length
      ? `${(from + 1).toLocaleString("en")} to ${Math.min(from + AT_ONCE, shown.length).toLocaleString("en")} of ${shown.length.toLocaleString("en")} rows`
      : "No row is left; remove a filter.";
    byId("before").disabled = page === 0;
    byId("after").disabled = from + AT_ONCE >= shown.length;
  };
  const lineOf = (row) => {
    const name = `search ${columns.search[row]}, rank ${columns.rank[row]}`;
    const button = element("button", columns.rank[row] === 1 ? columns.search[row] : `${columns.search[row]}.${columns.rank[row]}`, {
      type: "button", class: "open", "aria-expanded": "false", "aria-label": `parts of ${name}`,
    });
    const head = element("th", "", { scope: "row" });
    head.append(element("code", columns.strategy[row]));
    columns.marks[row] && head.append(element("small", columns.marks[row]));
    const line = element("tr");
    const first = element("td", button, { class: "n" });
    line.append(first, head, ...dimensions.map((one) => element("td", value(one, row), { class: "name" })));
    line.append(...measures.map(({ key }) => element("td", figure(columns[key][row]), { class: "n" })));
    line.addEventListener("click", () => getSelection().isCollapsed && open(row, line));
    line.dataset.row = row;
    return line;
  };
  const partsTable = (title, unit, { names: known, rows }, row) => {
    const whole = rows[row].reduce((sum, one) => sum + one, 0) || 1;
    const table = element("table", element("caption", title));
    known.forEach((name, at) => {
      const one = rows[row][at];
      if (one / whole >= 0.0005) {
        const line = element("tr", element("th", name, { scope: "row", title: data.meaning[name] ?? "" }));
        line.append(element("td", `${one} ${unit}`, { class: "n" }), element("td", `${((100 * one) / whole).toFixed(1)}%`, { class: "n" }));
        table.append(line);
      }
    });
    return table;
  };
  const open = (row, line) => {
    const again = opened?.line === line;
    if (opened) {
      opened.line.querySelector("button.open").setAttribute("aria-expanded", "false");
      opened.detail.remove();
      opened = null;
    }
    if (again) {
      return;
    }
    const [search, rank] = [columns.search[row], columns.rank[row]];
    const cell = element("div", partsTable("Step", "s", parts.step, row));
    cell.append(partsTable(`Memory of the fullest GPU, of ${columns.limit[row]} GiB`, "GiB", parts.memory, row));
    const why = told[search];
    if (why && rank === 1) {
      cell.append(element("p", why.why));
      const notes = element("ul", "", { class: "notes" });
      notes.append(...why.notes.map((note) => element("li", note)));
      cell.append(notes);
    }
    cell.append(element("pre", `forerun export ${data.folder} --search ${search} --rank ${rank} --format all --out launch\nforerun report ${data.folder} --search ${search} --out search-${search}.html`));
    const detail = element("tr", element("td", cell, { colspan: heads.length }), { class: "detail" });
    line.after(detail);
    line.querySelector("button.open").setAttribute("aria-expanded", "true");
    opened = { line, detail };
  };
  const goTo = (row) => {
    if (!chosen.includes(row)) {
      form.reset();
      choose();
    }
    if (columns.rank[row] !== 1) {
      byId("all").checked = true;
    }
    page = Math.floor(ordered().indexOf(row) / AT_ONCE);
    drawTable();
    const line = body.querySelector(`tr[data-row="${row}"]`);
    open(row, line);
    line.classList.add("picked");
    line.scrollIntoView({ block: "center" });
  };
  heads.forEach((head, at) => {
    const button = element("button", titles[at], { type: "button" });
    button.addEventListener("click", () => {
      const { key, more } = head.dataset;
      sorted = { key, more: sorted.key === key ? !sorted.more : more === "" };
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sorted.more ? "descending" : "ascending");
      page = 0;
      drawTable();
    });
    head.replaceChildren(button);
  });
  byId("before").addEventListener("click", () => ((page -= 1), drawTable()));
  byId("after").addEventListener("click", () => ((page += 1), drawTable()));

  const follow = () => {
    const search = Number(/^#search-(\d+)$/.exec(location.hash)?.[1]);
    const row = best.find((one) => columns.search[one] === search);
    row === undefined || goTo(row);
  };
  form.addEventListener("input", choose);
  byId("all").addEventListener("input", () => ((page = 0), drawTable()));
  form.addEventListener("reset", () => setTimeout(choose));
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("measure").addEventListener("change", drawCurves);
  addEventListener("hashchange", follow);
  document.querySelectorAll(".scripted").forEach((one) => (one.hidden = false));
  choose();
  follow();
})();
