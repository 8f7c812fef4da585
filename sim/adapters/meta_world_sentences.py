"""What each of Meta-World's tasks asks for, in words, and the ten of the multi-task benchmark."""

from __future__ import annotations

from collections.abc import Mapping

from temporeal.sim.stl.instructions.vocabulary import Vocabulary

MT10 = ("reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "drawer-close-v3",
        "button-press-topdown-v3", "peg-insert-side-v3", "window-open-v3", "window-close-v3")
"""The benchmark of ten tasks (Yu et al. 2019, section 4.3)."""

UNDRAWN = frozenset((
    "reach-v3", "reach-wall-v3", "push-v3", "push-wall-v3", "push-back-v3", "pick-place-v3", "pick-place-wall-v3",
    "pick-out-of-hole-v3", "hand-insert-v3", "coffee-pull-v3", "stick-push-v3", "stick-pull-v3", "plate-slide-side-v3",
    "plate-slide-back-v3", "plate-slide-back-side-v3"))
"""Tasks whose goal no body shows, so that no picture can: it is told as a signal."""

SENTENCES: Mapping[str, str] = {
    "assembly-v3": "put the nut onto the peg",
    "basketball-v3": "dunk the ball into the basket",
    "bin-picking-v3": "move the puck from one bin to the other",
    "box-close-v3": "put the lid onto the box",
    "button-press-topdown-v3": "press the button from above",
    "button-press-topdown-wall-v3": "press the button behind the wall from above",
    "button-press-v3": "press the button",
    "button-press-wall-v3": "press the button behind the wall",
    "coffee-button-v3": "press the button of the coffee machine",
    "coffee-pull-v3": "pull the mug from the coffee machine",
    "coffee-push-v3": "push the mug under the coffee machine",
    "dial-turn-v3": "turn the dial",
    "disassemble-v3": "take the nut off the peg",
    "door-close-v3": "close the door",
    "door-lock-v3": "lock the door",
    "door-open-v3": "open the door",
    "door-unlock-v3": "unlock the door",
    "drawer-close-v3": "close the drawer",
    "drawer-open-v3": "open the drawer",
    "faucet-close-v3": "close the faucet",
    "faucet-open-v3": "open the faucet",
    "hammer-v3": "hammer the nail into the wall",
    "hand-insert-v3": "put the hand into the hole",
    "handle-press-side-v3": "press the handle down from the side",
    "handle-press-v3": "press the handle down",
    "handle-pull-side-v3": "pull the handle up from the side",
    "handle-pull-v3": "pull the handle up",
    "lever-pull-v3": "pull the lever up",
    "peg-hard": "insert the peg into the hole at the side",
    "peg-insert-side-v3": "insert the peg into the hole at the side",
    "peg-unplug-side-v3": "unplug the peg at the side",
    "pick-out-of-hole-v3": "pick the puck out of the hole",
    "pick-place-v3": "bring the puck to the goal in the air",
    "pick-place-wall-v3": "bring the puck over the wall to the goal",
    "plate-slide-back-side-v3": "slide the plate out of the net at the side",
    "plate-slide-back-v3": "slide the plate out of the net",
    "plate-slide-side-v3": "slide the plate into the net at the side",
    "plate-slide-v3": "slide the plate into the net",
    "push-back-v3": "pull the puck back to the goal",
    "push-v3": "push the puck to the goal",
    "push-wall-v3": "push the puck around the wall to the goal",
    "reach-v3": "bring the hand to the goal",
    "reach-wall-v3": "bring the hand over the wall to the goal",
    "shelf-place-v3": "put the puck onto the shelf",
    "soccer-v3": "push the ball into the goal",
    "stick-pull-v3": "pull the box with the stick",
    "stick-push-v3": "push the box with the stick",
    "sweep-into-v3": "sweep the puck into the hole",
    "sweep-v3": "sweep the puck off the table",
    "window-close-v3": "close the window",
    "window-open-v3": "open the window",
}

VOCABULARY = Vocabulary(tuple(sorted({word for sentence in SENTENCES.values() for word in sentence.split()})))
"""The words of all 50, so that policies of some of the tasks can be tuned on others."""
