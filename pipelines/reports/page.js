"use strict";
// Draws attention: one map per kind, layer and head, with weights as bytes from 0 to 255.
for (const box of document.querySelectorAll(".attention")) {
  const data = JSON.parse(document.getElementById(box.dataset.from).textContent);
  const bytes = {};
  for (const kind of Object.keys(data.maps)) {
    bytes[kind] = Uint8Array.from(atob(data.maps[kind].bytes), (c) => c.charCodeAt(0));
  }
  const make = (name, parent, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const controls = make("div", box);
  controls.className = "controls";
  const choice = (name, options, chosen) => {
    const select = make("select", make("label", controls, name));
    options.forEach(([value, text]) => (make("option", select, text).value = value));
    select.value = chosen;
    select.addEventListener("change", draw);
    return select;
  };
  const kinds = Object.entries(data.maps).map(([kind, map]) => [kind, map.title]);
  const kind = choice("Attention", kinds, data.kind);
  const layer = choice("Layer", [], "");
  const heads = data.heads.map((n) => [n, `head ${n}`]);
  if (heads.length > 1) heads.unshift(["mean", "mean of all"]);
  const head = choice("Head", heads, data.head);
  const overview = make("div", box);
  overview.className = "heads";
  const scroll = make("div", box);
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  const told = make("output", box);

  function weights(map, all, number) {
    const size = map.rows.length * map.columns.length;
    const start = (map.layers.indexOf(+layer.value) * data.heads.length) * size;
    if (number !== "mean") {
      const first = start + data.heads.indexOf(+number) * size;
      return Array.from(all.subarray(first, first + size), (w) => w / 255);
    }
    const mean = new Array(size).fill(0);
    for (let i = 0; i < size * data.heads.length; i++) {
      mean[i % size] += all[start + i] / 255 / data.heads.length;
    }
    return mean;
  }

  // The encoder and the decoder may have different numbers of layers.
  function offerLayers(map) {
    const before = layer.options.length ? +layer.value : NaN;
    layer.replaceChildren();
    map.layers.forEach((n) => (make("option", layer, `layer ${n}`).value = n));
    layer.value = map.layers.includes(before) ? before : map.layers[map.layers.length - 1];
  }

  function draw() {
    const map = data.maps[kind.value], all = bytes[kind.value];
    if (layer.options.length !== map.layers.length) offerLayers(map);
    const heat = getComputedStyle(document.documentElement).getPropertyValue("--heat");
    overview.replaceChildren();
    for (const [number, name] of heads) {
      const button = make("button", overview);
      button.type = "button";
      button.setAttribute("aria-pressed", String(head.value === String(number)));
      const canvas = make("canvas", button);
      canvas.width = map.columns.length;
      canvas.height = map.rows.length;
      const context = canvas.getContext("2d");
      context.fillStyle = heat;
      weights(map, all, number).forEach((w, i) => {
        context.globalAlpha = w;
        context.fillRect(i % canvas.width, Math.floor(i / canvas.width), 1, 1);
      });
      make("span", button, name);
      button.addEventListener("click", () => {
        head.value = number;
        draw();
        overview.querySelector("[aria-pressed=true]").focus();
      });
    }
    const found = weights(map, all, head.value);
    scroll.replaceChildren();
    const table = make("table", scroll);
    table.className = "map";
    table.style.setProperty("--columns", map.columns.length);  // sets the size of the cells
    const top = make("tr", make("thead", table));
    make("td", top);
    map.columns.forEach((text) => make("th", top, text));
    const body = make("tbody", table);
    map.rows.forEach((text, row) => {
      const line = make("tr", body);
      make("th", line, text);
      map.columns.forEach((column, i) => {
        const weight = found[row * map.columns.length + i];
        const cell = make("td", line);
        cell.style.background =
          `color-mix(in srgb, var(--heat) ${(100 * weight).toFixed(1)}%, var(--paper))`;
        const said = `${text} → ${column}: ${(100 * weight).toFixed(1)} %`;
        cell.title = said;
        cell.addEventListener("mouseenter", () => { told.textContent = said; });
      });
    });
    told.textContent = map.axes;
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
