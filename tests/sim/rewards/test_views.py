"""The baselines' views of a formula, against definitions: whole traces, and loops over them."""

from dataclasses import replace
from io import BytesIO
from math import exp, log

import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import DT, SCHEMA, Definition, formulas, samples, states, windows

from temporeal.sim.compiler.vectorize import LANES, Kernel, Plain, table, views
from temporeal.sim.env import make_env
from temporeal.sim.rewards.tau_mdp import Reward as HistoryReward
from temporeal.sim.rewards.views import VIEWS, NotSupported
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import And, Not, Or
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.language.temporal import Always, Eventually, Until
from temporeal.sim.stl.semantics.robustness import robustness, satisfied
from temporeal.sim.task import MISSION_TIME, load_task

ALL = {**SCHEMA, "mission_time": MISSION_TIME}
SHAPES = {"x": (), "y": (), "p": (3,), "mission_time": ()}
FORMS = {
    "reach and avoid": "F[0,1.2] (x > 1.2) & F[0.5,1.5] (norm(p) < 1) & G[0.3,1.5] !(y > 2.2)",
    "outer F": "F[0.2,1.5] (G[0,0.3] (x > -0.6) & F[0,0.5] (y > 0.5))",
    "outer G": "G[0,1] (F[0,0.8] (x > 0.2) | F[0.2,0.5] (y > 1) | G[0.1,0.3] (y < 0))",
    "until": "(x < 1.5) U[0.2,1.4] (y > 1) & (y > -2) W[0,0.6] (x > 1) & F[0,1] (mission_time > 0.4 & x > 0)",
    "state": "x > -1 & F[0,0.7] (y > 0)",
    "patrol": "G[0,0.8] F[0,0.5] (x > 0.2) & F[0.1,1] (G[0.1,0.2] (y > 0) | F[0,0.4] (y > 1.5)) & G[0,1.5] (y > -2.5)",
}
DEEP = "F[0,1] (x > 0.5 & F[0,0.8] (y > 0.5 & G[0,0.2] (norm(p) < 2.5)))"


def noise(length, seed=0, worlds=50):
    values = torch.randn(length, worlds, 5, generator=torch.Generator().manual_seed(seed))
    time = (torch.arange(length) * DT)[:, None].expand(-1, worlds)
    return {"x": values[..., 0], "y": values[..., 1], "p": values[..., 2:], "mission_time": time}


def at(signals, t):
    return {k: v[t] for k, v in signals.items()}


def zeros(shapes, n):
    return {k: torch.zeros(n, *s) for k, s in shapes.items()}


def made(name, formula, length, **settings):
    return VIEWS[name](formula, DT, length - 1, ALL, **settings)


def played(view, signals):
    """Rewards [T - 1, N], success [T, N], features [T, N, F], privileged [T, N, .] of an episode."""
    length, n = signals["x"].shape
    objective, rewards, success, seen, own = view.objective, [], [], [], []
    memory, remembered = objective.start(at(signals, 0), zeros(objective.carry, n)), zeros(view.memory, n)
    for t in range(length):
        if t:
            reward, terminated, memory = objective.step(at(signals, t), torch.zeros(n, 2), memory)
            assert not terminated.any()
            rewards.append(reward)
        features, remembered = view.features({k: signals[k][t] for k in view.reads}, remembered)
        assert features.shape == (n, view.size)
        assert {k: tuple(v.shape[1:]) for k, v in remembered.items()} == dict(view.memory)
        assert {k: tuple(v.shape[1:]) for k, v in memory.items()} == dict(objective.carry)
        success.append(objective.success(at(signals, t), memory))
        own.append(objective.privileged(at(signals, t), memory))
        seen.append(features)
    assert own[0].shape == (n, objective.privileged_dim)
    return torch.stack(rewards), torch.stack(success), torch.stack(seen), torch.stack(own)


def samples_of(formula):
    return round(horizon(formula, DT) / DT)


def verdicts(formula, signals):
    return satisfied(formula, {k: v.contiguous() for k, v in signals.items()}, DT)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_success_is_the_verdict_of_the_whole_trace(view, text):
    formula = parse(text, ALL)
    length = samples_of(formula) + 3
    signals = noise(length)
    _, success, _, _ = played(made(view, formula, length), signals)
    verdict = verdicts(formula, signals)[0]
    assert not success[:-3].any()  # not before it can be known
    for late in success[-3:]:
        assert torch.equal(late, verdict)
    assert verdict.any() and not verdict.all()


# ---------------------------------------------------------------- plain


@pytest.mark.parametrize("text", [*FORMS.values(), DEEP], ids=[*FORMS, "deep"])
def test_plain_pays_the_robustness_of_the_episode_once(text):
    formula = parse(text, ALL)
    length = samples_of(formula) + 2
    signals = noise(length, 1)
    view = made("terminal_robustness", formula, length, reward={"robustness": 2.0, "satisfied": 3.0, "cap": 0.8})
    rewards, _, seen, _ = played(view, signals)
    worth = robustness(formula, signals, DT)[0]
    paid = 2.0 * worth.clamp(-0.8, 0.8) + 3.0 * (worth > 0)
    torch.testing.assert_close(rewards[-2], paid)
    rewards[-2] = 0
    assert not rewards.any()
    torch.testing.assert_close(seen[:, 0, 0], torch.linspace(0, 1, length))


@settings(max_examples=examples(30), deadline=None)
@given(formulas(past=True, unbounded_past=True, max_leaves=4), st.integers(0, 2**31))
def test_plain_of_any_formula(formula, seed):
    length = max(samples_of(formula), 1) + 1
    signals = noise(length, seed, worlds=1)
    rewards, _, _, _ = played(made("terminal_robustness", formula, length, reward={"cap": 1e4}), signals)
    by_hand = {k: v.double().numpy() for k, v in signals.items()}
    worth = Definition(samples(by_hand), 0).at(formula, 0)
    assert rewards.sum().item() == pytest.approx(min(max(worth, -1e4), 1e4), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("view", ["terminal_robustness", "f_mdp", "tau_mdp"])
def test_a_critic_beside_an_actor_that_does_not_know_them_sees_the_margins_so_far(view):
    formula = parse("F[0,1] (x > 1) & G[0,1] (y < 2)", ALL)
    signals = noise(11)
    early = {} if view == "tau_mdp" else {"early": 1.0}  # that pays so by itself
    _, _, _, own = played(made(view, formula, 11, privileged=True, reward=early), signals)
    torch.testing.assert_close(own[5, :, 0], (signals["x"][:6] - 1).amax(0))
    torch.testing.assert_close(own[5, :, 1], (2 - signals["y"][:6]).amin(0))


def test_settings_that_a_view_does_not_have_are_named():
    for view, legal in {
        "scheduled": "none",
        "terminal_robustness": "privileged",
        "tau_mdp": "samples, privileged",
    }.items():
        with pytest.raises(ValueError, match=rf"of_view\.x: view {view} has no such setting; legal: {legal}$"):
            load_task("stl", view=view, of_view={"x": 1})


def test_flags_show_no_margins_that_nothing_is_paid_by():
    with pytest.raises(ValueError, match=r"of_view\.privileged .* reward\.early is paid by, which is 0"):
        made("f_mdp", parse("F[0,1] (x > 1)", ALL), 11, privileged=True)


# ---------------------------------------------------------------- history


@pytest.mark.parametrize("text", ["F[0.2,1.5] (F[0,0.4] (x > 1) & G[0.1,0.3] (y < 1))", "G[0.1,1] F[0,0.5] (x > 0.3)",
                                  "G[0,1] ((x > 1) -> F[0,0.3] (y > 0 & F[0,0.2] (x < 0)))", "F[0.3,1] (x > 1)"])
def test_history_pays_the_terms_of_the_log_sum_exp(text):
    formula = parse(text, ALL)
    length, most = samples_of(formula) + 4, isinstance(formula, Eventually)
    signals = noise(length, 2, worlds=20)
    rewards, _, _, _ = played(made("tau_mdp", formula, length, reward={"beta": 2.0, "exponent": 50.0}), signals)
    inner = robustness(formula.arg, signals, DT)
    tau = samples_of(formula.arg)
    lo, hi = (round(x / DT) for x in (formula.window.lo, formula.window.hi))
    for n in range(20):
        terms = []
        for t in range(1, length):
            start = t - tau
            rho = float(inner[start, n]) if start >= 0 else None
            due = lo <= start <= hi
            wanted = 0.0 if not due else (exp(2 * rho) - 1) / 2 if most else (1 - exp(-2 * rho)) / 2
            assert float(rewards[t - 1, n]) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
            terms += [float(rewards[t - 1, n])] * due
        # the sum that is learned stands for the robustness, up to log(number of terms) / beta
        sign, worth = (1 if most else -1), float(robustness(formula, signals, DT)[0, n])
        soft = sign * log(sum(1 + 2 * sign * r for r in terms)) / 2
        if lo + tau > 0:
            assert -1e-4 <= sign * (soft - worth) <= log(len(terms)) / 2 + 1e-4


@pytest.mark.parametrize(
    "view, own",
    [
        ("tau_mdp", {"robustness": 2.0}),
        ("terminal_robustness", {"robustness": 0.0, "early": 2.0}),
        ("f_mdp", {"satisfied": 0.0, "early": 2.0}),
    ],
)
@pytest.mark.parametrize("text", [FORMS["reach and avoid"], FORMS["until"], FORMS["patrol"]])
def test_what_is_paid_early_sums_to_the_soft_robustness(view, own, text):
    formula, sharp, cap = parse(text, ALL), 2.0, 3.0
    length = samples_of(formula) + 3
    signals = noise(length, 3)
    made_view = made(view, formula, length, reward={**own, "sharp": sharp, "cap": cap})
    rewards, _, _, _ = played(made_view, signals)
    margins = torch.stack([robustness(part, signals, DT)[0] for part in formula.args])
    soft = -torch.log(torch.exp(-sharp * margins.clamp(-cap, cap)).sum(0)) / sharp
    first = made_view.objective.start(at(signals, 0), zeros(made_view.objective.carry, 50))["soft"]
    torch.testing.assert_close(rewards.sum(0), 2.0 * (soft - first))
    assert not rewards[-2:].any()  # what is known changes no more
    exact = robustness(formula, signals, DT)[0].clamp(-cap, cap)
    assert ((soft <= exact + 1e-5) & (soft >= exact - log(len(formula.args)) / sharp - 1e-5)).all()


def test_a_window_that_has_not_begun_does_not_count():
    view = made("tau_mdp", parse("F[1,2] (x > 1) & G[0,2] (y < 2)", ALL), 21, reward={"sharp": 1.0})
    signals = noise(21, 3)
    rewards, _, _, _ = played(view, signals)
    assert rewards[9].abs().min() > 0.1  # the first sample that x may be reached at
    before = torch.stack([rewards[k] for k in range(9)])
    assert before.abs().max() < 3 and before.any() and not (before > 0).any()  # y alone: it can only become worse


@pytest.mark.parametrize("text, told, known", [
    ("F[2,2] (x > 1) & G[0,2] (y < 2)", 20, lambda s, t: (2 - s["y"][: t + 1]).amin(0)),
    ("X (x > 1) & G[0,0.1] (y < 2)", 1, lambda s, t: 2 - s["y"][0]),
    ("F[1,2] (x > 1) & X (y > 0)", 10, lambda s, t: s["y"][1])])
def test_what_is_told_late_does_not_count_before(text, told, known):
    formula = parse(text, ALL)
    signals, reward = noise(24, 5), {"early": 1.0, "sharp": 1.0}
    objective = made("terminal_robustness", formula, samples_of(formula) + 1, reward=reward).objective
    memory = objective.start(at(signals, 0), zeros(objective.carry, 50))
    for t in range(told):
        if t:
            _, _, memory = objective.step(at(signals, t), torch.zeros(50, 2), memory)
        if t or told == 1:  # X says nothing at the first sample
            other = known(signals, t)
            torch.testing.assert_close(memory["soft"], -torch.log(torch.exp(-other) + exp(-10.0)))


def test_what_can_never_hold_counts_at_the_end():
    formula = parse("F[0,1] (x > 1) & F[0,1] false", ALL)
    view = made("terminal_robustness", formula, 11, reward={"robustness": 0.0, "early": 1.0, "cap": 5.0})
    objective, signals = view.objective, noise(11)
    memory = objective.start(at(signals, 0), zeros(objective.carry, 50))
    for t in range(1, 11):
        _, _, memory = objective.step(at(signals, t), torch.zeros(50, 2), memory)
    assert (memory["soft"] <= -5.0).all()


@pytest.mark.parametrize("view", ["tau_mdp", "f_mdp"])
def test_satisfied_is_paid_once(view):
    formula = parse(FORMS["reach and avoid"], ALL)
    length = samples_of(formula) + 3
    signals = noise(length)
    rewards = [played(made(view, formula, length, reward={"satisfied": bonus}), signals)[0] for bonus in (0.0, 7.0)]
    paid = rewards[1] - rewards[0]
    torch.testing.assert_close(paid[-3], 7.0 * verdicts(formula, signals)[0].float())
    paid[-3] = 0
    assert not paid.abs().gt(1e-5).any()


def test_history_of_a_conjunction_is_the_whole_episode():
    formula = parse(FORMS["reach and avoid"], ALL)
    assert made("tau_mdp", formula, samples_of(formula) + 1).rows == samples_of(formula)


@pytest.mark.parametrize("kept", [None, 100, 4, 1])
def test_history_holds_what_the_formula_reads(kept):
    formula = parse("F[0,0.5] (G[0,1] (x > 0) & F[0.2,0.7] (norm(p) < 1 | mission_time > 1))", ALL)
    length, tau = 16, 10
    signals = noise(length, 4, worlds=3)
    view = made("tau_mdp", formula, length, samples=kept)
    _, _, seen, _ = played(view, signals)
    stride = {None: 1, 100: 1, 4: 3, 1: 10}[kept]
    rows = -(-tau // stride)
    assert (view.reads, view.size) == (("x", "p"), 4 * (1 + rows) + 1)
    for t in range(length):
        newest = (t - 1) // stride * stride
        places = [t, *(max(newest - stride * k, 0) for k in range(rows))] if t else [0] * (1 + rows)
        wanted = torch.cat([torch.cat([signals["x"][s, :, None], signals["p"][s]], -1) for s in places], -1)
        torch.testing.assert_close(seen[t, :, :-1], wanted)


def test_history_of_one_layer_is_the_state():
    view = made("tau_mdp", parse("G[0,2] (x > 0)", ALL), 30)
    assert (view.memory, view.size) == ({"tick": ()}, 2)


def test_large_robustness_does_not_blow_up_the_reward():
    formula = parse("G[0,1] F[0,0.2] (x > 50)", ALL)
    rewards, _, _, _ = played(made("tau_mdp", formula, 13), noise(13))
    assert rewards.min() == pytest.approx(1 - exp(HistoryReward().exponent))


# ---------------------------------------------------------------- flags

flat = windows(most=4)
inner = st.recursive(
    st.one_of(st.builds(Always, states, flat), st.builds(Eventually, states, flat)),
    lambda f: st.one_of(st.builds(Not, f), st.lists(f, min_size=2, max_size=3).map(tuple).flatmap(
        lambda a: st.sampled_from([And(a), Or(a)]))), max_leaves=4)
outer = st.one_of(st.builds(Always, inner, flat), st.builds(Eventually, inner, flat))
several = st.lists(st.one_of(outer, inner), min_size=2, max_size=2).map(tuple)
reaching = st.builds(Until, states, states, flat)
single = st.one_of(inner, several.map(And), several.map(Or).map(Not), reaching, reaching.map(Not))


@settings(max_examples=examples(80), deadline=None)
@given(st.one_of(outer, single), st.integers(0, 2**31))
def test_flags_know_what_is_satisfied(formula, seed):
    """Success is the verdict; each step of an outer window pays for that of what is inside."""
    length = max(samples_of(formula), 1) + 2
    signals = noise(length, seed, worlds=2)
    rewards, success, _, _ = played(made("f_mdp", formula, length), signals)
    for n in range(2):
        means = Definition(samples({k: v.double().numpy() for k, v in signals.items()}, n), 1)
        assert bool(success[-1, n]) == means.at(formula, 0)
        if not isinstance(formula, (Always, Eventually)) or not isinstance(formula.arg, (Always, Eventually, And, Or)):
            continue
        tau, most = samples_of(formula.arg), isinstance(formula, Eventually)
        temporal = tau > 0
        for t in range(1, length):
            inside = round(formula.window.lo / DT) <= t - tau <= round(formula.window.hi / DT)
            if temporal:
                wanted = inside * (means.at(formula.arg, t - tau) - (not most)) if inside else 0
                assert float(rewards[t - 1, n]) == wanted


def test_flags_move_by_the_published_rules():
    formula = parse("G[0,0.5] (F[0,0.4] (x > 0.3) & G[0,0.2] (y > 0))", ALL)
    view, signals = made("f_mdp", formula, 12), noise(12, 5, worlds=4)
    _, _, seen, _ = played(view, signals)
    for n in range(4):
        first, second = 0.0, 0.0
        y = [False, False, *(signals["y"][:, n] > 0).tolist()]  # the shorter window ends two samples earlier
        for t in range(12):
            first = 1.0 if signals["x"][t, n] > 0.3 else max(first - 1 / 5, 0.0)
            second = min(second + 1 / 3, 1.0) if y[t] else 0.0
            assert seen[t, n].tolist() == pytest.approx([first, second, t / 11], abs=1e-6)


def test_flags_stand_outside_their_windows():
    formula = parse("F[0.2,0.5] (x > 0) & (y > 0) U[0,0.3] (x > 2)", ALL)
    x, y = torch.full((9, 1), -1.0), torch.ones(9, 1)
    x[3], y[1] = 1.0, -1.0
    signals = {**noise(9, worlds=1), "x": x, "y": y}
    _, _, seen, _ = played(made("f_mdp", formula, 9), signals)
    assert seen[:, 0, 0].tolist() == pytest.approx([0, 0, 0, 1, 0.75, 0.5, 0.5, 0.5, 0.5])
    assert seen[:, 0, 2].tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 1]  # what the until keeps is broken


@pytest.mark.parametrize("text", [FORMS["reach and avoid"], FORMS["until"], FORMS["outer G"]])
def test_shaping_pays_the_change_of_what_holds(text):
    formula = parse(text, ALL)
    length = samples_of(formula) + 1
    signals, bare = noise(length, 6), made("f_mdp", formula, length)
    view = made("f_mdp", formula, length, reward={"shaping": 4.0})
    more = played(view, signals)[0] - played(bare, signals)[0]
    n = len(view.flags.shown)
    assert torch.isin((more / 4 * n).round(decimals=3), torch.arange(-n, n + 1.0)).all()
    assert more.abs().max() > 0
    memory = view.objective.start(at(signals, 0), zeros(view.objective.carry, 50))
    total = -4 * memory["share"]
    for t in range(1, length):
        memory = view.objective.step(at(signals, t), torch.zeros(50, 2), memory)[2]
    torch.testing.assert_close(more.sum(0), total + 4 * memory["share"])


@pytest.mark.parametrize(("text", "why"), [
    (DEEP, "a third layer of windows"), ("G[0,1] ((x > 0) U[0,1] (y > 0))", "inside an F or G"),
    ("F[0,1] X (x > 0)", "looks to the next sample, or back"), ("G[0,1] O[0,1] (x > 0)", "or back"),
    ("(F[0,1] (x > 0)) U[0,1] (y > 0)", "windows inside its own"), ("F (x > 0)", "no end"),
    ("F[0,1] true & F[0,1] (x > 0)", "reads no signal"), ("F[0,0.15] (x > 0)", "no multiple of the sample period")])
def test_flags_name_the_forms_they_take(text, why):
    with pytest.raises(NotSupported, match=r"(?s)f_mdp.*phi: F\[c,d\] p and G\[c,d\] p joined") as error:
        made("f_mdp", parse(text, ALL), 60)
    assert why in str(error.value)


@pytest.mark.parametrize("view", ["terminal_robustness", "tau_mdp"])
def test_a_window_without_an_end_is_refused(view):
    with pytest.raises(NotSupported, match="no end"):
        made(view, parse("G (x > 0) & F[0,1] (y > 0)", ALL), 60)


@pytest.mark.parametrize("view", VIEWS)
def test_wrong_settings_are_refused(view):
    formula = parse(FORMS["outer F"], ALL)
    with pytest.raises(ValueError, match="unknown weights .'beat'.; legal: "):
        made(view, formula, 30, reward={"beat": 1.0})
    with pytest.raises(ValueError, match="known after 20 control steps, an episode has 19"):
        made(view, formula, 20)


@pytest.mark.parametrize(("view", "settings_", "why"), [
    ("tau_mdp", {"reward": {"beta": 0.0}}, "reward.beta must be positive, got 0.0"),
    ("tau_mdp", {"samples": 0}, "samples is a whole number above 0"),
    ("tau_mdp", {"samples": 2.5}, "samples is a whole number above 0"),
    ("terminal_robustness", {"reward": {"cap": -1.0}}, "reward.cap must be positive")])
def test_numbers_that_cannot_work_are_refused(view, settings_, why):
    with pytest.raises(ValueError, match=why):
        made(view, parse(FORMS["outer F"], ALL), 30, **settings_)


# ---------------------------------------------------------------- compiled, exported, in an environment


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("text", [FORMS["reach and avoid"], FORMS["outer F"], FORMS["patrol"]])
def test_compiled_is_as_it_is(view, text):
    formula, worlds = parse(text, ALL), LANES + 5
    length = samples_of(formula) + 2
    part, signals = made(view, formula, length), noise(length, 7, worlds)
    objective = part.objective
    columns = {**{f"o.{k}": v for k, v in objective.carry.items()}, **{f"m.{k}": v for k, v in part.memory.items()},
               "reward": (), "ended": (), "success": ()}
    shapes = SHAPES
    rows = {**shapes, "seen": (part.size,)}

    def function(x, first=False):
        memory = {k: x[f"o.{k}"] for k in objective.carry}
        given = {k: x[k] for k in shapes}
        if first:
            reward, ended, memory = x["x"] * 0, x["x"] * 0, objective.start(given, memory)
        else:
            reward, ended, memory = objective.step(given, x["p"], memory)
        seen, after = part.features(given, {k: x[f"m.{k}"] for k in part.memory})
        return {"reward": reward, "ended": ended, "success": objective.success(given, memory), "seen": seen,
                **{f"o.{k}": v for k, v in memory.items()}, **{f"m.{k}": v for k, v in after.items()}}

    found = []
    inputs = (*shapes, *(k for k in columns if k[1] == "."))
    for kind in (Kernel, Plain):
        start, step = kind(lambda x: function(x, True), columns, rows, inputs), kind(function, columns, rows, inputs)
        memory = table(columns, worlds)
        out = []
        for t in range(length):
            given = {**{k: v.clone().contiguous() for k, v in at(signals, t).items()},
                     "seen": torch.zeros(worlds, part.size)}
            (step if t else start)(memory, given)
            column = views(memory, columns, worlds)
            out.append(torch.cat([given["seen"], *(column[k][:, None] for k in ("reward", "ended", "success"))], -1))
        found.append(torch.stack(out))
    torch.testing.assert_close(*found, rtol=2e-6, atol=2e-6)
    assert found[0][..., -1].any()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.filterwarnings(
    "ignore"
)  # the exporter of the artifacts (temporeal.policies.export) is deprecated, and says so
def test_features_are_the_same_in_an_exported_graph(view):
    """Traced once with zeros for two worlds, they follow episodes of fifty."""
    formula = parse(FORMS["outer G"] if view != "f_mdp" else FORMS["until"], ALL)
    length = samples_of(formula) + 1
    part, signals = made(view, formula, length, **({"samples": 3} if view == "tau_mdp" else {})), noise(length, 8)
    names = [*part.reads, *part.memory]

    class Flat(torch.nn.Module):
        def forward(self, *given):
            seen, after = part.features(*({k: v for k, v in zip(names, given) if (k in part.memory) == remembered}
                                          for remembered in (False, True)))
            return (seen, *(after[k] for k in part.memory))

    shapes, buffer, outputs = {**{k: SHAPES[k] for k in part.reads}, **part.memory}, BytesIO(), ["seen", *part.memory]
    torch.onnx.export(Flat(), tuple(zeros(shapes, 2).values()), buffer, input_names=names,
                      output_names=[f"{k}'" for k in outputs], opset_version=17, dynamo=False,
                      dynamic_axes={k: {0: "n"} for k in (*names, *(f"{k}'" for k in outputs))})
    graph = onnxruntime.InferenceSession(buffer.getvalue())
    wanted = played(part, signals)[2]
    memory = {k: v.numpy() for k, v in zeros(part.memory, 50).items()}
    for t in range(length):
        given = {**{k: signals[k][t].numpy() for k in part.reads}, **memory}
        seen, *after = graph.run(None, {i.name: given[i.name] for i in graph.get_inputs()})
        memory = dict(zip(part.memory, after))
        torch.testing.assert_close(torch.from_numpy(seen), wanted[t])


class Seen(torch.nn.Module):
    """A view's features, and the position."""

    def __init__(self, view):
        super().__init__()
        self.view, self.memory, self.obs_dim = view, dict(view.memory), 3 + view.size
        self.signals = tuple(dict.fromkeys(("base_pos_w", *view.reads)))

    def forward(self, signals, memory):
        seen, after = self.view.features(signals, memory)
        return torch.cat([signals["base_pos_w"], seen], -1), after

    def record(self, memory, action):
        return memory


FLIGHT = ("F[0,0.3] (base_pos_w.x > 0.02 & F[0,0.2] (base_vel_w.z > 0)) & G[0.1,0.5] (base_pos_w.z > 0.9)",
          "G[0,0.3] F[0,0.2] (base_vel_w.z > -0.1)")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("text", FLIGHT)
def test_an_environment_pays_the_robustness_of_what_it_did(text, compiled):
    """Also in the second episode; and its state is enough to go on bit by bit."""
    base = load_task("waypoints")
    formula = parse(text, base.schema)
    view = VIEWS["terminal_robustness"](formula, base.control_dt, 25, base.schema)
    task = replace(base, formula=formula, formula_text=text, episode_s=0.5, objective=view.objective,
                   observe=Seen(view), mid_episode=None, schedules=None)
    env = make_env(task, num_worlds=32, seed=3, compiled=compiled)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        trace = [{k: v.clone() for k, v in env.true_signals().items()}]
        for t in range(25):
            if t == 11:
                saved = env.state_dict()
            action = 0.5 * torch.randn(32, 4, generator=generator)
            step = env.step(action)
            trace.append({k: v.clone() for k, v in step.info["signals"].items()})
        assert step.truncated.all() and not step.terminated.any()
        whole = {k: torch.stack([s[k] for s in trace]) for k in ("base_pos_w", "base_vel_w")}
        torch.testing.assert_close(step.info["return"], robustness(formula, whole, 0.02)[0], rtol=1e-5, atol=1e-6)
        assert torch.equal(step.info["success"], satisfied(formula, whole, 0.02)[0])
    env.load_state_dict(saved)
    generator.manual_seed(0)
    actions = [0.5 * torch.randn(32, 4, generator=generator) for _ in range(50)]
    for action in actions[36:]:
        again = env.step(action)
    assert torch.equal(again.reward, step.reward) and torch.equal(again.info["return"], step.info["return"])
