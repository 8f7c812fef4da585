// Signals and commands over time beside the replay: plain SVG, driven by the player's event "replaymoment".
// An episode's `series`: [{name, unit, read, parts, low, high, data}], see series.py.
"use strict";
(function () {
  const source = document.getElementById("replay-data"), root = document.querySelector("[data-ui=signals]");
  if (!source || !root) return;
  const episodes = JSON.parse(source.textContent).episodes;
  if (!episodes.some((e) => e.series && e.series.length)) { root.hidden = true; return; }
  let shown = -1, plots = [];

  function decoded(series) { // [frame][part], null where there is no number
    const bytes = Uint8Array.from(atob(series.data), (c) => c.charCodeAt(0)), view = new DataView(bytes.buffer);
    const parts = series.parts.length, rows = [];
    for (let k = 0; k < bytes.length / 2 / parts; k++) {
      rows.push(series.parts.map((_, p) => {
        const raw = view.getInt16(2 * (k * parts + p), true);
        return raw === -32768 ? null : series.low + ((raw + 32767) / 65534) * (series.high - series.low);
      }));
    }
    return rows;
  }

  function words(series) { // numbers to about a thousandth of what the signal spans
    const digits = Math.min(Math.max(3 - Math.ceil(Math.log10(series.high - series.low)), 0), 9);
    return (v) => (v === null ? "–" : Math.abs(v) >= 1e6 ? v.toExponential(2) : v.toFixed(digits)).replace("-", "−").replace(/^−(0\.?0*)$/, "$1");
  }

  function plot(e, series) {
    const rows = decoded(series), [low, high] = padded(series), last = rows.length - 1, short = words(series);
    const x = (k) => ((100 * (k < last ? k * e.dt : e.end)) / (e.end || 1)).toFixed(2);
    const y = (v) => (39 - (38 * (v - low)) / (high - low)).toFixed(2);
    const lines = series.parts.map((_, p) => {
      let path = "", open = false;
      rows.forEach((row, k) => { if (row[p] === null) { open = false; return; } path += (open ? "L" : "M") + x(k) + " " + y(row[p]); open = true; });
      return '<path class="c' + (p % 8) + '" d="' + path + '"/>';
    }).join("");
    const zero = low < 0 && high > 0 ? '<line class="zero" x1="0" x2="100" y1="' + y(0) + '" y2="' + y(0) + '"/>' : "";
    const box = document.createElement("figure");
    const kind = series.read === null ? "commanded" : series.read ? "in the formula" : "";
    const caption = document.createElement("figcaption");
    const name = document.createElement("b");
    name.textContent = series.name;
    const more = document.createElement("span"), range = document.createElement("span");
    more.textContent = (series.unit && series.unit !== "1" ? series.unit : "") + (kind ? " · " + kind : "");
    range.textContent = short(series.low) + " … " + short(series.high);
    caption.append(name, more, range);
    box.append(caption);
    box.insertAdjacentHTML("beforeend", '<svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img">' + zero + lines + '<line class="head" x1="0" x2="0" y1="0" y2="40"/></svg><div class="values"></div>');
    box.querySelector("svg").setAttribute("aria-label", series.name + " over time");
    const values = box.querySelector(".values"), cells = series.parts.map((part, p) => {
      const cell = document.createElement("span");
      cell.className = "c" + (p % 8);
      values.append(cell);
      return (v) => { cell.textContent = (part ? part + " " : "") + short(v); };
    });
    root.append(box);
    const head = box.querySelector(".head");
    return (frame, share) => {
      head.setAttribute("x1", 100 * share); head.setAttribute("x2", 100 * share);
      const row = rows[Math.min(frame, last)];
      cells.forEach((cell, p) => cell(row[p]));
    };
  }

  function padded(series) {
    const pad = 0.06 * (series.high - series.low);
    return [series.low - pad, series.high + pad];
  }

  document.addEventListener("replaymoment", (event) => {
    const {episode, frame, share} = event.detail, e = episodes[episode];
    if (episode !== shown) {
      shown = episode;
      root.replaceChildren();
      plots = (e.series || []).map((series) => plot(e, series));
    }
    for (const update of plots) update(frame, share);
  });
})();
