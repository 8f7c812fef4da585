// A 3-D replay in plain JavaScript on a 2-D canvas: no library, no network, works from file://.
// World frame: x east, y north, z up, metres. Data comes from the JSON element "replay-data":
//   {scene: [...], arm: m, episodes: [{group, label, note, verdict, robustness, decided, dt, end,
//    pos: [mm, flat], quat: [1e-3, flat, wxyz], lower: [], upper: []}]}; frame k is at k dt, the last one at `end`
// Without `figure` a quadrotor is drawn at pos. With it, pos is only what is followed, and what is drawn are meshes:
//   {figure: {bodies: B, floor: bool, parts: [{body, at: [1e-4 m, flat], faces: [[corner]], rgb, alpha}]}}, and an episode
//   has poses (base64, int16 little-endian [frames, B, 7]: m in `unit`, wxyz in 1/32767) and
//   goals: [{name, radius, pos, quat}], one row per frame or one for all
// With `plane` all that happens lies in the plane z = 0: the whole arena is seen from above, the robot as large as it must
// be to be recognised. Each moment shown is told to others by the event "replaymoment" {episode, frame, share}.
"use strict";
(function () {
  const source = document.getElementById("replay-data");
  const root = document.getElementById("replay");
  if (!source || !root) return;
  const data = JSON.parse(source.textContent);
  if (!data.episodes.length) { root.hidden = true; return; }
  const canvas = root.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const ui = {};
  for (const name of ["episode", "play", "scrub", "speed", "reset", "others", "follow", "clock", "state", "note", "bounds", "range"]) {
    ui[name] = root.querySelector("[data-ui=" + name + "]");
  }

  // ---- colours: from the page's custom properties, read again when the theme changes -----------------------
  const probe = document.createElement("span");
  probe.hidden = true;
  root.appendChild(probe);
  let ink = {};
  function readColours() {
    for (const name of ["text", "muted", "line", "panel", "good", "bad", "goal", "avoid", "accent", "ground"]) {
      probe.style.color = "var(--" + name + ")";
      const parts = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
      ink[name] = (alpha) => "rgba(" + parts[0] + "," + parts[1] + "," + parts[2] + "," + alpha + ")";
    }
  }

  // ---- episodes ------------------------------------------------------------------------------------------
  const figure = data.figure || null;
  if (figure) for (const part of figure.parts) part.at = Float64Array.from(part.at, (v) => v / 1e4);
  for (const e of data.episodes) {
    e.n = e.pos.length / 3;
    e.when = (k) => (k < e.n - 1 ? k * e.dt : e.end);
    e.at = (k) => [e.pos[3 * k] / 1000, e.pos[3 * k + 1] / 1000, e.pos[3 * k + 2] / 1000];
    if (e.poses) {
      const bytes = Uint8Array.from(atob(e.poses), (c) => c.charCodeAt(0)), view = new DataView(bytes.buffer);
      e.poses = Float64Array.from({length: bytes.length / 2}, (_, i) => view.getInt16(2 * i, true) * (i % 7 < 3 ? e.unit : 1));
    }
  }
  let current = 0, time = 0, playing = false, last = null;

  function mix(list, i, j, f) { // of two quaternions in a flat list, the shorter way
    const q = [0, 0, 0, 0];
    let dot = 0, norm = 0;
    for (let m = 0; m < 4; m++) dot += list[i + m] * list[j + m];
    for (let m = 0; m < 4; m++) {
      q[m] = list[i + m] * (1 - f) + list[j + m] * f * (dot < 0 ? -1 : 1);
      norm += q[m] * q[m];
    }
    norm = Math.sqrt(norm);
    return norm ? q.map((v) => v / norm) : [1, 0, 0, 0];
  }

  function sample(e, t) {
    if (e.n < 2) return {p: e.at(0), q: e.quat ? mix(e.quat, 0, 0, 0) : [1, 0, 0, 0], k: 0, i: 0, j: 0, f: 0};
    const k = Math.min(Math.max(Math.floor(t / e.dt + 1e-6), 0), e.n - 2);
    const f = Math.min(Math.max((t - e.when(k)) / (e.when(k + 1) - e.when(k)), 0), 1);
    const a = e.at(k), b = e.at(k + 1), q = e.quat ? mix(e.quat, 4 * k, 4 * k + 4, f) : [1, 0, 0, 0];
    return {p: [0, 1, 2].map((m) => a[m] + f * (b[m] - a[m])), q, k: f > 1 - 1e-6 ? k + 1 : k, i: k, j: k + 1, f};
  }

  function pose(e, now, body) { // of a body of the figure
    if (body < 0 || !e.poses) return [[0, 0, 0], [1, 0, 0, 0]];
    const i = 7 * (now.i * figure.bodies + body), j = 7 * (now.j * figure.bodies + body);
    return [[0, 1, 2].map((m) => e.poses[i + m] + now.f * (e.poses[j + m] - e.poses[i + m])), mix(e.poses, i + 3, j + 3, now.f)];
  }

  function turn(q, v) { // body to world
    const [w, x, y, z] = q, [a, b, c] = v;
    return [
      (1 - 2 * (y * y + z * z)) * a + 2 * (x * y - w * z) * b + 2 * (x * z + w * y) * c,
      2 * (x * y + w * z) * a + (1 - 2 * (x * x + z * z)) * b + 2 * (y * z - w * x) * c,
      2 * (x * z - w * y) * a + 2 * (y * z + w * x) * b + (1 - 2 * (x * x + y * y)) * c];
  }

  // ---- camera --------------------------------------------------------------------------------------------
  const reach = figure ? reaches() : [], bounds = extent();
  const body = figure ? size() : 0, roams = figure && !data.plane && bounds.radius > 2.5 * body; // it walks away: go with it
  const near = figure ? 0.04 * body : 0.05;
  const home = data.plane ? {yaw: -Math.PI / 2, pitch: 1.55, dist: 2 * bounds.radius, target: bounds.center.slice()} : {yaw: -1.05, pitch: 0.5, dist: (figure ? 2.35 : 2.5) * (roams ? 1.4 * body : bounds.radius), target: [bounds.center[0], bounds.center[1], (figure ? 1 : 0.8) * bounds.center[2]]};
  if (roams) { ui.follow.checked = true; ui.others.checked = false; }
  let camera = {...home, target: home.target.slice()}, moved = false; // moved: by hand
  let eye, axes, focal, width, height;

  function fit() { // the whole arena in view, whatever the canvas
    if (!data.plane || moved) return;
    const half = [0, 1].map((i) => (bounds.high[i] - bounds.low[i]) / 2), focal = focalLength();
    home.dist = camera.dist = 1.08 * focal * Math.max(half[0] / (width / 2), half[1] / (height / 2)) + bounds.high[2];
  }

  function reaches() { // how far the meshes of each body reach from its origin
    const out = new Array(figure.bodies).fill(0);
    for (const {body, at} of figure.parts) {
      for (let i = 0; body >= 0 && i < at.length; i += 3) out[body] = Math.max(out[body], Math.hypot(at[i], at[i + 1], at[i + 2]));
    }
    return out;
  }

  function size() { // radius of the figure at the start of the first episode
    const e = data.episodes[0], now = sample(e, 0);
    let low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
    for (const {body, at} of figure.parts) {
      const [p, q] = pose(e, now, body);
      for (let i = 0; i < at.length; i += 3) {
        turn(q, [at[i], at[i + 1], at[i + 2]]).forEach((v, m) => { low[m] = Math.min(low[m], v + p[m]); high[m] = Math.max(high[m], v + p[m]); });
      }
    }
    return Math.max(0.02, Math.hypot(...low.map((v, m) => (high[m] - v) / 2)) || 0);
  }

  function extent() {
    let low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
    const grow = (p) => { for (let i = 0; i < 3; i++) { low[i] = Math.min(low[i], p[i]); high[i] = Math.max(high[i], p[i]); } };
    const fence = data.scene.filter((s) => s.type === "box");
    fence.forEach((s) => { grow(s.low); grow(s.high); });
    if (figure) {
      for (const {body, at} of figure.parts) for (let i = 0; body < 0 && i < at.length; i += 3) grow([at[i], at[i + 1], at[i + 2]]);
      for (const e of data.plane && fence.length ? [] : data.episodes) {
        const stride = 7 * figure.bodies;
        for (let k = 0; e.poses && k < e.poses.length; k += 7 * stride) {
          reach.forEach((r, b) => { for (const s of [-0.5, 0.5]) grow([0, 1, 2].map((m) => e.poses[k + 7 * b + m] + s * r)); });
        }
        for (const g of e.goals) for (let i = 0; i < g.pos.length; i += 3) grow([0, 1, 2].map((m) => g.pos[i + m] / 1000));
      }
    } else if (!fence.length) {
      data.scene.forEach((s) => s.center && grow(s.center));
      data.episodes.forEach((e) => { for (let k = 0; k < e.n; k += 5) grow(e.at(k)); });
    }
    if (!figure || figure.floor) low[2] = Math.min(low[2], 0);
    const center = [0, 1, 2].map((i) => (low[i] + high[i]) / 2);
    return {low, high, center, radius: Math.max(figure ? 0.05 : 0.8, Math.hypot(...[0, 1, 2].map((i) => (high[i] - low[i]) / 2)))};
  }

  function aim() {
    const cp = Math.cos(camera.pitch), sp = Math.sin(camera.pitch), cy = Math.cos(camera.yaw), sy = Math.sin(camera.yaw);
    eye = [camera.target[0] + camera.dist * cp * cy, camera.target[1] + camera.dist * cp * sy, camera.target[2] + camera.dist * sp];
    axes = [[-sy, cy, 0], [-sp * cy, -sp * sy, cp], [-cp * cy, -cp * sy, -sp]]; // right, up, forward
    focal = focalLength();
  }
  function focalLength() { return 1.25 * Math.min(width, height * 1.35); }

  function project(p) { // [x, y, depth, scale], depth <= 0 is behind the eye
    const d = [p[0] - eye[0], p[1] - eye[1], p[2] - eye[2]];
    const dotWith = (a) => a[0] * d[0] + a[1] * d[1] + a[2] * d[2];
    const z = dotWith(axes[2]), s = focal / Math.max(z, 1e-3);
    return [width / 2 + s * dotWith(axes[0]), height / 2 - s * dotWith(axes[1]), z, s];
  }

  // ---- drawing: primitives with a depth, painted far to near -----------------------------------------------
  let queue = [];
  function push(depth, paint) { queue.push([depth, paint]); }
  function path(points) {
    const q = points.map(project);
    if (q.some((p) => p[2] < near)) return null;
    return q;
  }
  function trace2d(q, close) {
    pen.beginPath();
    q.forEach((p, i) => (i ? pen.lineTo(p[0], p[1]) : pen.moveTo(p[0], p[1])));
    if (close) pen.closePath();
  }
  function line(points, colour, thickness, dash, above = 0) { // above: m that it is lifted above what hides it
    const q = path(points);
    if (!q) return;
    const depth = q.reduce((s, p) => s + p[2], 0) / q.length - above;
    push(depth, () => {
      trace2d(q, false);
      pen.setLineDash(dash || []);
      pen.strokeStyle = colour; pen.lineWidth = thickness; pen.stroke();
      pen.setLineDash([]);
    });
  }
  function face(points, fill, stroke) {
    const q = path(points);
    if (!q) return;
    push(q.reduce((s, p) => s + p[2], 0) / q.length, () => {
      trace2d(q, true);
      if (fill) { pen.fillStyle = fill; pen.fill(); }
      if (stroke) { pen.strokeStyle = stroke; pen.lineWidth = 1; pen.stroke(); }
    });
  }

  function ground() {
    const wide = Math.max(bounds.high[0] - bounds.low[0], bounds.high[1] - bounds.low[1]);
    const step = data.plane ? (wide > 8 ? 1 : 0.5) : wide > 8 ? 2 : figure && wide < 0.6 ? 0.05 : figure && wide < 3 ? 0.25 : 0.5, edge = figure ? step : 0.5;
    const arena = data.plane && data.scene.find((s) => s.type === "box" && s.role === "fence");
    const [x0, y0] = arena ? arena.low : bounds.low.map((v) => Math.floor(v / edge) * edge);
    const [x1, y1] = arena ? arena.high : bounds.high.map((v) => Math.ceil(v / edge) * edge);
    const q = path([[x0, y0, 0], [x1, y0, 0], [x1, y1, 0], [x0, y1, 0]]);
    if (q) { trace2d(q, true); pen.fillStyle = ink.ground(1); pen.fill(); }
    pen.lineWidth = 1;
    for (const [from, to, along] of [[x0, x1, 0], [y0, y1, 1]]) {
      for (let v = from; v <= to + 1e-9; v += step) {
        const g = path(along ? [[x0, v, 0], [x1, v, 0]] : [[v, y0, 0], [v, y1, 0]]);
        if (!g) continue;
        trace2d(g, false);
        pen.strokeStyle = ink.line(figure || Math.abs(v % 1) < 1e-9 ? 0.9 : 0.4);
        pen.stroke();
      }
    }
  }

  function region(s) { // a box that is a place to be or to keep out of
    const [a, b, c] = s.low, [d, e, f] = s.high, colour = s.role === "avoid" ? ink.avoid : ink.goal;
    for (const z of [c, f]) face([[a, b, z], [d, b, z], [d, e, z], [a, e, z]], colour(0.16), colour(0.75));
    for (const [p, q] of [[[a, b], [d, b]], [[d, b], [d, e]], [[d, e], [a, e]], [[a, e], [a, b]]]) {
      face([[...p, c], [...q, c], [...q, f], [...p, f]], colour(0.12), colour(0.4));
    }
    label(s.name, [(a + d) / 2, (b + e) / 2, f + 0.08], colour(1));
  }

  function box(s) {
    if (s.role === "goal" || s.role === "avoid") { region(s); return; }
    const [a, b, c] = s.low, [d, e, f] = s.high, colour = ink.muted(0.55);
    const corner = (i) => [i & 1 ? d : a, i & 2 ? e : b, i & 4 ? f : c];
    for (const [i, j] of [[0, 1], [1, 3], [3, 2], [2, 0], [4, 5], [5, 7], [7, 6], [6, 4], [0, 4], [1, 5], [2, 6], [3, 7]]) {
      const p = corner(i), q = corner(j), parts = 6; // short pieces sort better by depth
      for (let k = 0; k < parts; k++) {
        const at = (f) => p.map((v, m) => v + (q[m] - v) * f);
        line([at(k / parts), at((k + 1) / parts)], colour, 1, [5, 4]);
      }
    }
  }

  function cylinder(s) {
    const sides = 28, r = s.radius, [x, y, z = 0] = s.center, top = z + s.height, rim = [];
    for (let i = 0; i < sides; i++) {
      const angle = (2 * Math.PI * i) / sides;
      rim.push([x + r * Math.cos(angle), y + r * Math.sin(angle), angle]);
    }
    const colour = s.role === "avoid" ? ink.avoid : ink.goal;
    for (let i = 0; i < sides; i++) {
      const p = rim[i], q = rim[(i + 1) % sides];
      const shade = 0.13 + 0.1 * (0.5 + 0.5 * Math.cos(p[2] - camera.yaw - 0.9));
      face([[p[0], p[1], z], [q[0], q[1], z], [q[0], q[1], top], [p[0], p[1], top]], colour(shade));
    }
    for (const h of [z, top]) {
      face(rim.map((p) => [p[0], p[1], h]), colour(0.16), colour(0.75));
    }
    label(s.name, [x, y, top + 0.08], colour(1));
  }

  function sphere(s) {
    const q = project(s.center);
    if (q[2] < near) return;
    const r = s.radius * q[3], colour = s.role === "avoid" ? ink.avoid : ink.goal;
    push(q[2], () => {
      const light = pen.createRadialGradient(q[0] - 0.35 * r, q[1] - 0.4 * r, 0.1 * r, q[0], q[1], r);
      light.addColorStop(0, colour(0.1)); light.addColorStop(0.75, colour(0.22)); light.addColorStop(1, colour(0.42));
      pen.beginPath(); pen.arc(q[0], q[1], r, 0, 2 * Math.PI);
      pen.fillStyle = light; pen.fill();
      pen.strokeStyle = colour(0.9); pen.lineWidth = 1.25; pen.stroke();
    });
    const foot = [s.center[0], s.center[1], 0];
    line([s.center, foot], colour(0.45), 1, [2, 4]);
    label(s.name, [s.center[0], s.center[1], s.center[2] + s.radius + 0.06], colour(1));
  }

  function course(s) { // a line to follow
    for (let i = 0; i + 1 < s.points.length; i++) line([s.points[i], s.points[i + 1]], ink.goal(0.8), 2, [6, 4]);
    if (s.points.length) label(s.name, [s.points[0][0], s.points[0][1], s.points[0][2] + 0.1], ink.goal(1));
  }

  function label(text, at, colour) {
    if (!text) return;
    const q = project(at);
    if (q[2] < near) return;
    push(q[2] - 0.3, () => {
      pen.font = "600 13px system-ui, sans-serif"; pen.textAlign = "center";
      pen.lineWidth = 3; pen.strokeStyle = ink.panel(0.85); pen.strokeText(text.replace(/_/g, " "), q[0], q[1]);
      pen.fillStyle = colour; pen.fillText(text.replace(/_/g, " "), q[0], q[1]);
    });
  }

  function trail(e, until, colour, thickness, alphaPast, alphaAhead) {
    const stride = Math.max(1, Math.round(0.04 / e.dt));
    for (let k = 0; k < e.n - 1; k += stride) {
      const j = Math.min(k + stride, e.n - 1), past = e.when(j) <= until + 1e-6;
      const alpha = past ? alphaPast : alphaAhead;
      if (alpha > 0) line([e.at(k), e.at(j)], colour(alpha), past ? thickness : 1, [], data.plane ? bounds.high[2] : 0);
    }
  }

  function shadow(e, until) { // the trail's projection on the ground: where things are in depth
    pen.beginPath();
    let open = false;
    for (let k = 0; k < e.n && e.when(k) <= until + 1e-6; k++) {
      const p = e.at(k), q = project([p[0], p[1], 0]);
      if (q[2] < near) { open = false; continue; }
      if (open) pen.lineTo(q[0], q[1]); else pen.moveTo(q[0], q[1]);
      open = true;
    }
    pen.strokeStyle = ink.muted(0.35); pen.lineWidth = 2; pen.stroke();
  }

  function drone(now, colour) {
    const size = Math.max(data.arm, 0.028 * camera.dist), [x, y] = now.p; // larger than life: 9 cm is a dot from afar
    const foot = project([x, y, 0]);
    line([now.p, [x, y, 0]], ink.muted(0.6), 1, [2, 3]);
    if (foot[2] > near) {
      pen.beginPath(); pen.ellipse(foot[0], foot[1], 0.9 * size * foot[3], 0.5 * size * foot[3], 0, 0, 2 * Math.PI);
      pen.fillStyle = ink.muted(0.3); pen.fill();
    }
    const place = (v) => turn(now.q, v).map((c, i) => now.p[i] + c);
    const arms = [[1, -1], [-1, -1], [-1, 1], [1, 1]];
    line([place([-size, size, 0]), place([size, -size, 0])], ink.text(1), 3);
    line([place([-size, -size, 0]), place([size, size, 0])], ink.text(1), 3);
    arms.forEach(([a, b], i) => {
      const ring = [];
      for (let k = 0; k < 16; k++) {
        const angle = (2 * Math.PI * k) / 16;
        ring.push(place([size * (a + 0.72 * Math.cos(angle)), size * (b + 0.72 * Math.sin(angle)), 0.2 * size]));
      }
      const front = i === 0 || i === 3;
      face(ring, front ? colour(0.75) : ink.text(0.28), front ? colour(1) : ink.text(0.8));
    });
  }

  // ---- meshes --------------------------------------------------------------------------------------------
  const sun = [0.36, -0.48, 0.8]; // where the light comes from
  const LEAST = 16; // pixels from the middle of a robot in the plane to its rim
  function magnified() { return data.plane ? Math.max(1, (LEAST * camera.dist) / (focal * body)) : 1; }

  function meshes(e, now) {
    const larger = magnified(), above = data.plane ? bounds.high[2] : 0;
    for (const part of figure.parts) {
      const [p, q] = pose(e, now, part.body), n = part.at.length / 3, world = new Array(n), seen = new Array(n);
      for (let i = 0; i < n; i++) {
        world[i] = turn(q, [part.at[3 * i], part.at[3 * i + 1], part.at[3 * i + 2]]).map((v, m) => larger * v + p[m]);
        seen[i] = project(world[i]);
      }
      for (const corners of part.faces) {
        const flat = corners.map((i) => seen[i]);
        if (flat.some((c) => c[2] < near)) continue;
        let area = 0, depth = 0;
        flat.forEach((c, i) => { const d = flat[(i + 1) % flat.length]; area += c[0] * d[1] - d[0] * c[1]; depth += c[2]; });
        if (area >= 0) continue; // its back
        const [a, b, c] = [0, 1, 2].map((i) => world[corners[i]]);
        const u = b.map((v, m) => v - a[m]), v = c.map((w, m) => w - a[m]);
        const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
        const long = Math.hypot(...normal) || 1, along = (w) => normal.reduce((s, x, m) => s + x * w[m], 0) / long;
        const shade = 0.4 + 0.44 * Math.max(0, along(sun)) + 0.16 * Math.max(0, -along(axes[2]));
        const colour = "rgba(" + part.rgb.map((x) => Math.min(255, Math.round(x * shade))) + "," + part.alpha + ")";
        push(depth / flat.length - above, () => {
          trace2d(flat, true);
          pen.fillStyle = pen.strokeStyle = colour; pen.fill();
          if (part.alpha === 1) { pen.lineWidth = 0.7; pen.stroke(); } // no gaps between neighbours
        });
      }
    }
  }

  function triad(p, q, long, thickness, dash) { // x red, y green, z blue; above everything
    const from = project(p);
    if (from[2] < near) return;
    ["rgb(221,64,58)", "rgb(38,158,72)", "rgb(52,116,224)"].forEach((colour, m) => {
      const to = project(turn(q, [0, 1, 2].map((i) => (i === m ? long : 0))).map((v, i) => v + p[i]));
      if (to[2] >= near) push(-1, () => {
        trace2d([from, to], false);
        pen.setLineDash(dash); pen.strokeStyle = colour; pen.lineWidth = thickness; pen.stroke(); pen.setLineDash([]);
      });
    });
  }

  function goalMark(goal, now) {
    const row = (list, size, i) => list.length / size > i ? i : 0;
    const i = row(goal.pos, 3, now.k), at = [0, 1, 2].map((m) => goal.pos[3 * i + m] / 1000), q = project(at);
    if (q[2] < near) return;
    if (goal.quat) triad(at, mix(goal.quat, 4 * row(goal.quat, 4, now.k), 4 * row(goal.quat, 4, now.k), 0), 0.19 * body, 2, [5, 3]);
    if (!goal.radius) return;
    if (figure.floor) line([at, [at[0], at[1], 0]], ink.goal(0.6), 1.5, [2, 4]);
    label(goal.name, [at[0], at[1], at[2] + goal.radius + 0.06 * body], ink.goal(1));
    const r = Math.max(goal.radius * q[3], 4);
    push(-0.5, () => {
      pen.beginPath(); pen.arc(q[0], q[1], r, 0, 2 * Math.PI);
      pen.fillStyle = ink.goal(0.25); pen.fill();
      pen.strokeStyle = ink.goal(1); pen.lineWidth = 1.5; pen.stroke();
    });
  }

  function draw() {
    const e = data.episodes[current], now = sample(e, time), colour = e.verdict === "violated" ? ink.bad : ink.accent;
    if (ui.follow.checked) camera.target = now.p.slice();
    aim();
    pen.clearRect(0, 0, width, height);
    queue = [];
    if (eye[2] > 0 && (!figure || figure.floor || data.plane)) ground();
    if (!data.plane && (!figure || figure.floor)) shadow(e, time);
    for (const s of data.scene) ({box, cylinder, sphere, path: course}[s.type] || (() => {}))(s);
    if (ui.others.checked) {
      data.episodes.forEach((other, i) => {
        if (i !== current && other.group === e.group) trail(other, Infinity, other.verdict === "violated" ? ink.bad : ink.muted, 1, 0.4, 0);
      });
    }
    trail(e, time, colour, 3, 0.95, 0.28);
    if (figure) {
      meshes(e, now);
      if (e.quat && !data.plane) triad(now.p, now.q, 0.12 * body, 2.5, []);
      for (const goal of e.goals) goalMark(goal, now);
    } else drone(now, colour);
    queue.sort((a, b) => b[0] - a[0]);
    for (const [, paint] of queue) paint();
    status(e, now);
    root.dispatchEvent(new CustomEvent("replaymoment", {bubbles: true, detail: {episode: current, frame: now.k, share: time / (e.end || 1)}}));
  }

  // ---- status and bounds -----------------------------------------------------------------------------------
  function number(v) { return (v < 0 ? "−" : "+") + Math.abs(v).toFixed(figure ? 3 : 2); }

  function status(e, now) {
    ui.clock.textContent = time.toFixed(2) + " s";
    const known = e.decided !== null && time + 1e-6 >= e.decided;
    const verdict = known ? e.verdict : "undecided";
    const low = e.lower[now.k], high = e.upper[now.k], wide = low === null || high === null || high - low > 1e-6;
    const text = !wide ? "robustness " + number(low)
      : low !== null && high !== null ? "robustness from " + number(low) + " to " + number(high)
      : high !== null ? "robustness at most " + number(high)
      : low !== null ? "robustness at least " + number(low) : "robustness open";
    ui.state.textContent = verdict + " · " + text;
    ui.state.dataset.verdict = verdict;
    ui.scrub.value = String(Math.round(1000 * time));
    ui.scrub.setAttribute("aria-valuetext", time.toFixed(2) + " seconds, " + verdict);
    const head = ui.bounds.querySelector(".head");
    if (head) { const x = (100 * time) / (e.end || 1); head.setAttribute("x1", x); head.setAttribute("x2", x); }
  }

  function drawBounds(e) { // the interval in which the robustness can still end, narrowing as the flight goes on
    const finite = e.lower.concat(e.upper).filter((v) => v !== null);
    ui.range.textContent = "";
    if (!finite.length) { ui.bounds.innerHTML = ""; return; }
    const top = Math.min(1, Math.max(figure ? 0.01 : 0.1, ...finite)), bottom = Math.max(-1, Math.min(figure ? -0.01 : -0.1, ...finite));
    ui.range.textContent = "Shaded: where the robustness can still end, from " + number(bottom) + " to " + number(top) + "; dashed: 0.";
    const y = (v, missing) => 40 - (38 * ((v === null ? missing : Math.min(Math.max(v, bottom), top)) - bottom)) / (top - bottom) - 1;
    const x = (k) => (100 * e.when(k)) / (e.end || 1);
    const up = e.upper.map((v, k) => x(k).toFixed(2) + "," + y(v, top).toFixed(2));
    const down = e.lower.map((v, k) => x(k).toFixed(2) + "," + y(v, bottom).toFixed(2));
    ui.bounds.innerHTML = '<polygon class="band" points="' + up.concat(down.slice().reverse()).join(" ") + '"/>' +
      '<line class="zero" x1="0" x2="100" y1="' + y(0) + '" y2="' + y(0) + '"/>' +
      '<polyline class="edge" points="' + up.join(" ") + '"/><polyline class="edge" points="' + down.join(" ") + '"/>' +
      '<line class="head" x1="0" x2="0" y1="0" y2="40"/>';
  }

  // ---- control ---------------------------------------------------------------------------------------------
  function select(index) {
    current = index;
    const e = data.episodes[index];
    ui.episode.value = String(index);
    ui.scrub.max = String(Math.round(1000 * e.end));
    ui.note.textContent = e.note;
    drawBounds(e);
    seek(0);
  }
  function seek(t) {
    time = Math.min(Math.max(t, 0), data.episodes[current].end);
    draw();
  }
  function play(on) {
    playing = on;
    if (on && time >= data.episodes[current].end - 1e-6) time = 0;
    ui.play.textContent = on ? "❚❚ Pause" : "▶ Play";
    last = null;
    if (on) requestAnimationFrame(tick);
  }
  function tick(stamp) {
    if (!playing) return;
    if (last !== null) time += ((stamp - last) / 1000) * Number(ui.speed.value);
    last = stamp;
    const end = data.episodes[current].end;
    if (time >= end) { time = end; draw(); play(false); return; }
    draw();
    requestAnimationFrame(tick);
  }
  function orbit(dyaw, dpitch) {
    moved = true;
    camera.yaw += dyaw;
    camera.pitch = Math.min(1.55, Math.max(-0.1, camera.pitch + dpitch));
    draw();
  }
  function zoom(factor) {
    moved = true;
    camera.dist = Math.min(6 * bounds.radius, Math.max(figure ? 0.5 * body : 0.25, camera.dist * factor));
    draw();
  }

  data.episodes.forEach((e, i) => {
    let group = [...ui.episode.querySelectorAll("optgroup")].find((g) => g.label === e.group);
    if (!group) { group = document.createElement("optgroup"); group.label = e.group; ui.episode.appendChild(group); }
    const option = document.createElement("option");
    option.value = String(i); option.textContent = e.label;
    group.appendChild(option);
  });
  ui.episode.addEventListener("change", () => { select(Number(ui.episode.value)); play(true); });
  ui.play.addEventListener("click", () => play(!playing));
  ui.scrub.addEventListener("input", () => { play(false); seek(Number(ui.scrub.value) / 1000); });
  ui.reset.addEventListener("click", () => { ui.follow.checked = false; moved = false; camera = {...home, target: home.target.slice()}; fit(); draw(); });
  ui.others.addEventListener("change", draw);
  ui.follow.addEventListener("change", () => { if (!ui.follow.checked) camera.target = home.target.slice(); draw(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-episode]");
    if (!link) return;
    event.preventDefault();
    root.scrollIntoView({block: "start"});
    select(Number(link.dataset.episode));
    play(true);
  });

  const held = new Map(); // pointers that are down: one orbits, two pinch
  canvas.addEventListener("pointerdown", (event) => { held.set(event.pointerId, [event.clientX, event.clientY]); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const from = held.get(event.pointerId);
    if (!from) return;
    const to = [event.clientX, event.clientY];
    if (held.size === 1) orbit(-(to[0] - from[0]) * 0.008, (to[1] - from[1]) * 0.006);
    else {
      const other = [...held.entries()].find(([id]) => id !== event.pointerId)[1];
      const span = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
      zoom(span(from) / span(to));
    }
    held.set(event.pointerId, to);
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => held.delete(event.pointerId));
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(0.0012 * event.deltaY)); }, {passive: false});
  const keys = {
    " ": () => play(!playing), ArrowLeft: () => orbit(-0.1, 0), ArrowRight: () => orbit(0.1, 0), ArrowUp: () => orbit(0, 0.08),
    ArrowDown: () => orbit(0, -0.08), "+": () => zoom(0.88), "=": () => zoom(0.88), "-": () => zoom(1.14),
    ",": () => { play(false); seek(time - data.episodes[current].dt); }, ".": () => { play(false); seek(time + data.episodes[current].dt); },
    Home: () => { play(false); seek(0); }, End: () => { play(false); seek(Infinity); },
    n: () => select((current + 1) % data.episodes.length), p: () => select((current + data.episodes.length - 1) % data.episodes.length),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  function resize() {
    const ratio = window.devicePixelRatio || 1, area = canvas.getBoundingClientRect();
    width = Math.max(area.width, 50); height = Math.max(area.height, 50);
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    fit();
    draw();
  }
  window.addEventListener("themechange", () => { readColours(); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
  readColours();
  new ResizeObserver(resize).observe(canvas);
  width = height = 100;
  // #t=3.2&episode=1 in the address shows that moment and does not start to play
  const wanted = new URLSearchParams(location.hash.slice(1));
  select(Math.min(Number(wanted.get("episode") || 0), data.episodes.length - 1));
  if (wanted.has("t")) seek(Number(wanted.get("t")));
  else if (!matchMedia("(prefers-reduced-motion: reduce)").matches) play(true);
})();
