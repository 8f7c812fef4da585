// The episodes of a dataset as a table that is sorted and searched, and the signals of the chosen one (signals.js).
"use strict";
(function () {
  const {episodes, clauses} = JSON.parse(document.getElementById("replay-data").textContent);
  const $ = (id) => document.getElementById(id), mark = {"1": "✓", "-1": "✗", "0": "?"};
  const yes = (v) => (v === null ? "–" : v ? "✓" : "✗"), figure = (v) => (v === null || v === undefined ? "–" : String(v).replace("-", "−"));
  const columns = [
    ["#", (r) => r.index, figure], ["s", (r) => r.seconds, figure], ["return", (r) => r.return, figure], ["success", (r) => (r.success === null ? -1 : +r.success), (_, r) => yes(r.success)],
    ...(clauses.length ? [["robustness", (r) => r.robustness, figure], ...clauses.map((text, c) => ["c" + (c + 1), (r) => r.clauses[c], (v) => mark[v], text])] : []),
    ["instruction", (r) => r.language, (v) => v], ["source", (r) => r.source, (v) => v]]
    .filter(([name, key]) => !["instruction", "source"].includes(name) || episodes.some((e) => key(e.row)));
  let order = episodes.map((_, k) => k), by = -1, rising = true, chosen = -1;

  function sorted(column) {
    rising = by === column ? !rising : true;
    by = column;
    const key = columns[column][1], lost = (v) => v === null || v === undefined;
    order.sort((a, b) => { // what has no value comes last
      const x = key(episodes[a].row), y = key(episodes[b].row);
      if (lost(x) || lost(y)) return lost(x) - lost(y) || a - b;
      return (x < y ? -1 : x > y ? 1 : a - b) * (rising ? 1 : -1);
    });
    fill();
  }

  function fill() {
    const wanted = $("find").value.toLowerCase(), table = document.createElement("table"), top = table.insertRow();
    columns.forEach(([name, , , text], c) => {
      const cell = document.createElement("th"), button = document.createElement("button");
      button.className = "link"; button.textContent = name + (c === by ? (rising ? " ▲" : " ▼") : ""); button.title = text || "";
      button.addEventListener("click", () => sorted(c));
      cell.append(button); top.append(cell);
    });
    const kept = order.filter((k) => { const r = episodes[k].row; return !wanted || String(r.index) === wanted || (r.language + " " + r.source).toLowerCase().includes(wanted); });
    for (const k of kept) {
      const row = table.insertRow(), r = episodes[k].row;
      row.style.cursor = "pointer"; row.tabIndex = 0;
      if (k === chosen) row.style.background = "var(--sunk)";
      row.addEventListener("click", () => choose(k));
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(k); });
      for (const [, key, shown] of columns) {
        const cell = row.insertCell(), text = shown(key(r), r);
        cell.textContent = text;
        if (text === "✓") cell.className = "good"; else if (text === "✗") cell.className = "bad";
      }
    }
    $("count").textContent = kept.length + " of " + episodes.length + " episodes";
    $("episodes").replaceChildren(table);
  }

  function choose(k) {
    chosen = k;
    const e = episodes[k];
    $("which").textContent = "episode " + k + (e.series.length ? "" : ": its signals are not in this page");
    $("strip").replaceChildren(...e.strip.map((source) => { const image = document.createElement("img"); image.src = source; image.alt = "episode " + k; return image; }));
    fill(); moment();
  }

  function moment() {
    if (chosen < 0) return;
    const e = episodes[chosen], share = $("moment").value / 1000, frame = Math.round((share * e.end) / (e.dt || 1)) || 0;
    $("clock").textContent = e.series.length ? (share * e.end).toFixed(2) + " s" : "";
    document.dispatchEvent(new CustomEvent("replaymoment", {detail: {episode: chosen, frame, share}}));
  }

  $("find").addEventListener("input", fill);
  $("moment").addEventListener("input", moment);
  fill();
  if (episodes.length) choose(Math.max(0, episodes.findIndex((e) => e.series.length)));
})();
