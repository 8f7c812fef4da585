"""Kinds of missions. Those of training are single reaches, and/or trees, sequences, until patterns (the four of
TeLoGraF: Meng and Fan, ICML 2025), responses, recurrences and choices; the others are held out.

Each draws its visits and says what they are asked for. A place is asked for as ``at_a``, or, where it is stayed at, as
``G[0,h] at_a``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from temporeal.sim.stl.distribution.missions import Draft, Mission, Recurrence, Response, at, slot, window

Pairs = tuple[tuple[int, int], ...]
PATTERNS: dict[int, tuple[Pairs, ...]] = {
    2: (((0, 1),),),
    3: (((0, 1), (1, 2)), ((0, 1), (0, 2)), ((0, 2), (1, 2))),
    4: (((0, 1), (1, 2), (2, 3)), ((0, 1), (0, 2), (1, 3), (2, 3)), ((0, 1), (2, 3)), ((0, 1), (0, 2), (0, 3))),
    5: (((0, 1), (1, 2), (2, 3), (3, 4)), ((0, 2), (1, 2), (2, 3), (2, 4)), ((0, 1), (2, 3), (2, 4)),
        ((0, 4), (1, 4), (2, 4), (3, 4))),
    6: (((0, 1), (2, 3), (4, 5)), ((0, 2), (1, 2), (2, 3), (2, 4), (4, 5)), ((0, 3), (1, 3), (2, 3), (3, 4), (3, 5))),
    7: (((0, 1), (1, 2), (3, 4), (4, 5), (2, 6), (5, 6)), ((0, 2), (1, 2), (3, 5), (4, 5), (2, 6), (5, 6)),
        ((0, 1), (2, 3), (4, 5), (4, 6))),
}
"""Until patterns by their number of objects: of each pair (key, door) the door stays closed until the key is hit."""
ROUNDS = 3
"""Of a recurrence's witness."""


def reach(d: Draft) -> Mission:
    """``F a``."""
    return d.mission(d.reach(d.visit(later=True)))


def tree(d: Draft) -> Mission:
    """An alternating tree of conjunctions and disjunctions of reaches."""
    levels = d.between(d.family.depth)
    leaves = d.between((max(d.family.leaves[0], levels + 1), max(d.family.leaves[1], levels + 1)))
    template = _grown(d, leaves, levels, d.chance(0.5), True)
    return d.mission(template, d.shuffled(), nearest=d.chance(0.5), together=d.chance(0.5))


def _grown(d: Draft, leaves: int, levels: int, conjunction: bool, done: bool) -> str:
    """A tree of ``levels`` levels, or as many as so few leaves allow; of a disjunction one part is done."""
    levels = min(levels, leaves - 1)
    if levels == 0:
        return d.reach(d.visit(done=done, later=True))
    parts = leaves if levels == 1 else d.between((2, min(3, leaves - levels + 1)))
    sizes = [1] * parts
    sizes[0] = levels  # so that the first part can have a level less
    for _ in range(leaves - sum(sizes)):
        sizes[int(d.rng.integers(parts))] += 1
    d.rng.shuffle(sizes)
    taken = int(d.rng.integers(parts))
    texts = [_grown(d, size, levels - 1, not conjunction, done and (conjunction or k == taken))
             for k, size in enumerate(sizes)]
    return f"({(' & ' if conjunction else ' | ').join(texts)})"


def sequence(d: Draft) -> Mission:
    """``F (a & F (b & ...))``."""
    return d.mission(_nested(d, d.between(d.family.sequence), True))


def _nested(d: Draft, count: int, done: bool) -> str:
    """Nested eventuallies of ``count`` new visits, each counted from the one before."""
    first = len(d.visits)
    for k in range(count):
        d.visit(after=first + k - 1 if k else None, done=done)
    text = ""
    for k in reversed(range(first, first + count)):
        text = d.reach(k, text)
    return text


def until(d: Draft) -> Mission:
    """``(!b & !c) U a`` for each key, ``F`` for what is none."""
    count = d.between(d.family.objects)
    pairs = PATTERNS[count][int(d.rng.integers(len(PATTERNS[count])))]
    for _ in range(count):
        d.visit()
    order = d.shuffled(pairs)
    texts = []
    for i, visit in enumerate(d.visits):
        doors = [d.visits[b].place for a, b in pairs if a == i]
        kept = " & ".join(f"!{at(place)}" for place in doors)
        kept = f"({kept})" if len(doors) > 1 else kept
        texts.append(f"({kept} U[{window(i)}] {d.goal(i)})" if doors else d.reach(i))
        waiting = order[order.index(i):]
        shut = {d.visits[b].place for a, b in pairs if a in waiting}
        d.visits[i] = replace(visit, closed=tuple(sorted(shut - {visit.place})))
    return d.mission(" & ".join(texts), order)


def response(d: Draft) -> Mission:
    """``F a & G (a -> F b)``, once or twice."""
    texts, watches, shut = list[str](), list[Response](), list[str]()
    for k in range(1 + d.chance(0.5)):
        trigger, answer = d.visit(closed=shut, stay=False), d.visit(closed=shut)
        shut.append(d.visits[trigger].place)
        watches.append(Response(trigger, answer, f"r{k}", d.factor()))
        texts.append(f"{d.reach(trigger)} & G[0,{slot('t')}] ({at(shut[-1])} -> F[0,{slot(f'r{k}')}] {d.goal(answer)})")
    return d.mission(" & ".join(texts), watches=watches)


def recurrence(d: Draft) -> Mission:
    """``G F a & G F b (& G F c)``; or ``G F a & F b``: an errand, and back in time."""
    places = [d.place() for _ in range(d.between((1, 3)))]
    watches = [Recurrence(place, f"c{k}", d.factor()) for k, place in enumerate(places)]
    texts = [f"G[0,{slot('t')}] F[0,{slot(w.slot)}] {at(w.place)}" for w in watches]
    if len(places) == 1:
        d.visit(places[0], stay=False)
        texts.append(d.reach(d.visit()))
        d.visit(places[0], stay=False)
    else:
        for place in places * ROUNDS:
            d.visit(place, stay=False)
    return d.mission(" & ".join(texts), watches=watches)


def choice(d: Draft) -> Mission:
    """``(F (a & F b) | F (c & F d))``, of two or three sequences of one or two, perhaps ``& F e``."""
    branches = d.between((2, 3))
    taken = int(d.rng.integers(branches))
    lengths = [d.between((1, 2)) for _ in range(branches)]
    lengths[taken] = 2  # of reaches alone it would be a tree
    text = " | ".join(_nested(d, length, k == taken) for k, length in enumerate(lengths))
    return d.mission(f"({text}) & {d.reach(d.visit())}" if d.chance(0.5) else f"({text})")


def two_sequences(d: Draft) -> Mission:
    """``F (a & F b) & F (c & F d)``, in any order."""
    text = f"{_nested(d, 2, True)} & {_nested(d, 2, True)}"
    return d.mission(text, d.shuffled(((0, 1), (2, 3))))


def guarded(d: Draft) -> Mission:
    """``F (a & (!c U b)) & F c``: a door that closes at a, and opens at b."""
    first, then = d.visit(), d.visit(after=0)
    door = d.visit()
    shut = d.visits[door].place
    d.visits[then] = replace(d.visits[then], closed=(shut,))
    inner = f"(!{at(shut)} U[{window(then)}] {d.goal(then)})"
    return d.mission(f"{d.reach(first, inner)} & {d.reach(door)}")


def unlocked_sequence(d: Draft) -> Mission:
    """``(!b U a) & F (b & F c)``."""
    key, door, last = d.visit(), d.visit(), d.visit(after=1)
    shut = d.visits[door].place
    d.visits[key] = replace(d.visits[key], closed=(shut,))
    return d.mission(f"(!{at(shut)} U[{window(key)}] {d.goal(key)}) & {d.reach(door, d.reach(last))}")


def sequence_and_until(d: Draft) -> Mission:
    """``F (a & F b) & (!d U c) & F d``, in any order."""
    text = _nested(d, 2, True)
    key, door = d.visit(), d.visit()
    order, shut = d.shuffled(((0, 1), (key, door))), d.visits[door].place
    for i in order[: order.index(key) + 1]:
        d.visits[i] = replace(d.visits[i], closed=(shut,))
    return d.mission(f"{text} & (!{at(shut)} U[{window(key)}] {d.goal(key)}) & {d.reach(door)}", order)


def fork(d: Draft) -> Mission:
    """``F (a & (F b | F c))``."""
    taken = int(d.rng.integers(2))
    first = d.visit()
    ways = [d.reach(d.visit(after=first, done=k == taken)) for k in range(2)]
    return d.mission(d.reach(first, f"({' | '.join(ways)})"))


def unless(d: Draft) -> Mission:
    """``(!b W a) & F c``, by never going to b."""
    key, door = d.place(), d.place()
    goal = d.visit(closed=(door,))
    return d.mission(f"(!{at(door)} W[{window(goal)}] {at(key)}) & {d.reach(goal)}")


def chained_response(d: Draft) -> Mission:
    """``F a & G (a -> F (b & F c))``."""
    trigger, answer, last = d.visit(stay=False), d.visit(), d.visit(after=1)
    inner = f"F[0,{slot('r0')}] ({d.goal(answer)} & {d.reach(last)})"
    text = f"{d.reach(trigger)} & G[0,{slot('t')}] ({at(d.visits[trigger].place)} -> {inner})"
    return d.mission(text, watches=[Response(trigger, answer, "r0", d.factor())])


def stay_and_return(d: Draft) -> Mission:
    """``F (a & F (b & F a))``."""
    first, then = d.visit(), d.visit(after=0)
    back = d.visit(d.visits[first].place, after=then)
    return d.mission(d.reach(first, d.reach(then, d.reach(back))))


KINDS: dict[str, Callable[[Draft], Mission]] = {
    kind.__name__: kind for kind in (
        reach, tree, sequence, until, response, recurrence, choice, two_sequences, guarded, unlocked_sequence,
        sequence_and_until, fork, unless, chained_response, stay_and_return)}
"""By the names that a family's ``shares`` use."""
