"use strict";
(() => {
  const SHAPES = 8;
  const COLOURS = [2, 5, 0, 4, 3, 6, 7, 1, 8, 9];
  const NEAR_PX = 24;
  const byId = (id) => document.getElementById(id);
  const axes = JSON.parse(byId("axes").textContent);
  const board = byId("board");
  const body = board.tBodies[0];
  const rows = [...body.rows];
  const heads = [...board.tHead.rows[0].cells];
  const titles = heads.map((head) => head.textContent);
  titles[0] = "rank";
  const points = [];
  for (const point of byId("points").children) {
    points[Number(point.dataset.i)] = point;
  }

  // Copying: of a strategy, or of the commands that launch it.
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }

  // Sorting: equal rows keep the order of their rank.
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const sortBy = (column) => {
    const head = heads[column];
    const now = head.getAttribute("aria-sort");
    const direction = now === null ? head.dataset.first : now === "ascending" ? "descending" : "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const natural = new Intl.Collator("en", { numeric: true });
    const keyed = rows.map((row, place) => [key(row, column), place, row]);
    keyed.sort(([a, i], [b, j]) => sign * (typeof a === "number" ? a - b : natural.compare(a, b)) || i - j);
    close();
    body.append(...keyed.map((item) => item[2]));
    say();
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(column));
    head.replaceChildren(button);
  });

  // A row opens to its parts and its launch file; sorting and filtering close it.
  const details = JSON.parse(byId("details").textContent);
  let opened = null;

  // The parts of every step as a bar below its seconds, on one scale.
  const stepColumn = heads.findIndex((head) => head.dataset.key === "step");
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const longest = Math.max(...details.rows.map(([step]) => total(step)));
  rows.forEach((row, place) => {
    const track = document.createElement("div");
    track.className = "track small";
    track.ariaHidden = "true";
    details.rows[place][0].forEach((value, part) => {
      const piece = document.createElement("i");
      piece.className = `k${details.slots[part]}`;
      piece.style.width = `${(100 * value) / longest}%`;
      track.append(piece);
    });
    row.cells[stepColumn].append(track);
  });
  const element = (name, content, attributes = {}) => {
    const made = document.createElement(name);
    made.append(content);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  };
  const partsTable = (title, unit, names, values) => {
    const whole = values.reduce((sum, value) => sum + value, 0) || 1;
    const table = element("table", element("caption", title));
    names.forEach(([name, meaning], place) => {
      if (values[place] / whole < 0.0005) {
        return;
      }
      const row = element("tr", element("th", name, { scope: "row", title: meaning }));
      row.append(
        element("td", `${values[place].toPrecision(3)} ${unit}`, { class: "n" }),
        element("td", `${((100 * values[place]) / whole).toFixed(1)}%`, { class: "n" })
      );
      table.append(row);
    });
    return table;
  };
  const close = () => {
    if (opened) {
      opened.row.querySelector("button.open").setAttribute("aria-expanded", "false");
      opened.detail.remove();
      opened = null;
    }
  };
  const open = (place) => {
    const row = rows[place];
    const again = opened?.row === row;
    close();
    if (again) {
      return;
    }
    const [step, memory] = details.rows[place];
    const cell = element("td", partsTable("Step", "s", details.step, step), { colspan: heads.length });
    cell.append(partsTable("Memory of the fullest GPU", "GiB", details.memory, memory));
    const launch = details.launches[place];
    if (launch) {
      cell.append(element("pre", launch));
    } else {
      cell.append(element("p", `forerun export RUN --rank ${row.cells[0].textContent} writes its launch file.`));
    }
    const detail = element("tr", cell, { class: "detail" });
    row.after(detail);
    row.querySelector("button.open").setAttribute("aria-expanded", "true");
    opened = { row, detail };
  };
  rows.forEach((row, place) => {
    const rank = row.cells[0].textContent;
    const button = element("button", rank, {
      type: "button", class: "open", "aria-expanded": "false", "aria-label": `parts and launch file of rank ${rank}`,
    });
    row.cells[0].replaceChildren(button);
    row.addEventListener("click", () => getSelection().isCollapsed && open(place));
  });

  // Filtering: every word must begin a word of the strategy; every chosen axis must have its value.
  const form = byId("filter");
  const selects = [...form.querySelectorAll("select")];
  const names = rows.map((row) => row.cells[1].querySelector("code").textContent.toLowerCase().split(" "));
  const say = () => {
    const left = rows.filter((row) => !row.hidden).length;
    const by = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    byId("shown").textContent =
      `${left.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows` +
      `, sorted by ${titles[by]}, ${heads[by].getAttribute("aria-sort")}`;
  };
  const filter = () => {
    close();
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = selects.filter((select) => select.value).map((select) => [axes[select.dataset.axis], select.value]);
    rows.forEach((row, place) => {
      const keep =
        words.every((word) => names[place].some((name) => name.startsWith(word))) &&
        wanted.every(([values, value]) => String(values[place]) === value) &&
        (!byId("front").checked || "front" in row.dataset) &&
        (!byId("clean").checked || !("warned" in row.dataset));
      row.hidden = !keep;
      points[place].classList.toggle("off", !keep);
    });
    say();
  };
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  byId("by-axis")?.toggleAttribute("open", matchMedia("(min-width: 40rem)").matches);
  say();

  // Colour and symbol of the points by another axis.
  const colour = byId("colour");
  const svg = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const dress = (use, kind) => {
    use.setAttribute("href", `#s${kind % SHAPES}`);
    for (const slot of COLOURS) {
      use.classList.remove(`c${slot}`);
    }
    use.classList.add("pt", `c${COLOURS[kind % COLOURS.length]}`);
  };
  if (colour) {
    colour.addEventListener("change", () => {
      const values = axes[colour.value];
      const groups = [...new Set(values)].sort((a, b) => (typeof a === "number" ? a - b : a < b ? -1 : 1));
      points.forEach((point, place) => dress(point, groups.indexOf(values[place])));
      const items = groups.map((value, kind) => {
        const item = document.createElement("li");
        const symbol = svg("svg");
        const use = svg("use");
        symbol.setAttribute("class", "key");
        dress(use, kind);
        symbol.append(use);
        item.append(symbol, ` ${colour.value} ${value}`);
        return item;
      });
      byId("groups").replaceChildren(...items);
    });
  }

  byId("colour-form").hidden = !byId("colour-form").childElementCount;

  // Hover, touch and arrow keys in the scatter.
  const plot = byId("scatter");
  const tip = byId("tip");
  const ring = byId("ring");
  const views = JSON.parse(byId("views").textContent);
  const places = (view) => view.x.map((x, place) => [x / 100, view.y[place] / 100]);
  let at = places(Object.values(views)[0]);
  let current = -1;
  const text = (name, content) => {
    const element = document.createElement(name);
    element.textContent = content;
    return element;
  };
  const show = (place) => {
    current = place;
    tip.hidden = place < 0;
    ring.setAttribute("visibility", place < 0 ? "hidden" : "visible");
    if (place < 0) {
      return;
    }
    const cells = [...rows[place].cells];
    const figures = cells.slice(2, -1).map((cell, i) => `${titles[i + 2]}: ${cell.textContent}`);
    tip.replaceChildren(
      text("strong", `rank ${cells[0].textContent}`), text("code", cells[1].textContent), text("span", figures.join(", "))
    );
    const box = plot.getBoundingClientRect();
    const [x, y] = [at[place][0] * box.width, at[place][1] * box.height];
    ring.setAttribute("transform", `translate(${x} ${y})`);
    const left = Math.min(Math.max(x - tip.offsetWidth / 2, -40), box.width - tip.offsetWidth + 8);
    tip.style.left = `${left}px`;
    tip.style.top = `${y > tip.offsetHeight + 16 ? y - tip.offsetHeight - 14 : y + 14}px`;
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    let [best, least] = [-1, NEAR_PX * NEAR_PX];
    at.forEach(([x, y], place) => {
      const distance = (x * box.width - event.clientX + box.left) ** 2 + (y * box.height - event.clientY + box.top) ** 2;
      if (distance < least && !rows[place].hidden) {
        [best, least] = [place, distance];
      }
    });
    return best;
  };
  const pick = (place) => {
    if (place < 0) {
      return;
    }
    body.querySelector(".picked")?.classList.remove("picked");
    rows[place].classList.add("picked");
    rows[place].scrollIntoView({ block: "center" });
  };

  // Another axis: its grid and front take the place of the others, and the points move.
  byId("view")?.addEventListener("change", (event) => {
    const view = views[event.target.value];
    at = places(view);
    show(-1);
    points.forEach((point, place) => {
      point.setAttribute("x", `${view.x[place]}%`);
      point.setAttribute("y", `${view.y[place]}%`);
    });
    for (const group of plot.querySelectorAll(".view")) {
      group.classList.toggle("away", group.dataset.view !== event.target.value);
    }
    [byId("x-title").textContent, byId("y-title").textContent] = view.titles;
  });

  plot.addEventListener("pointermove", (event) => show(nearest(event)));
  plot.addEventListener("pointerdown", (event) => show(nearest(event)));
  plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(-1));
  plot.addEventListener("click", (event) => event.detail === 2 && pick(nearest(event)));
  plot.addEventListener("blur", () => show(-1));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      let place = current + step;
      while (rows[place]?.hidden) {
        place += step;
      }
      if (rows[place]) {
        show(place);
      }
    } else if (event.key === "Enter") {
      pick(current);
    } else if (event.key === "Escape") {
      show(-1);
    } else {
      return;
    }
    event.preventDefault();
  });
})();
