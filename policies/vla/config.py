"""Settings that all learners of vision-language-action policies have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from temporeal.policies.training.chunks.learner import ChunkConfig
from temporeal.policies.training.errors import SettingsError, choose, require

IMAGES, TEXTS = ("own", "imagenet"), ("own", "minilm")
TUNED = ("all", "expert")
TAKEN = ("all", "prefix")
TOLD = ("target_pos_w", "place_pos_w")
REMEMBERED = ("none", "first")


@dataclass(frozen=True)
class SeeingConfig:
    """Sizes of what sees and reads, and what training does against shortcuts.

    Args:
        ground: signals that the prefix must tell in training, and then tells the expert: the place of what is named.
        context: D, numbers of a token.
        keypoints: of each picture.
        pointers: of them, those whose place in the picture is told to the expert as numbers; grounding teaches them to
            look at the first so many places of ``ground``.
        heads: of attention.
        channels: of a picture's convolutions; the first two halve it, the sentence conditions the others.
        camera_tokens: that a picture's keypoints become.
        patches: P, besides, P x P tokens of each picture; 0: none.
        text_layers: of attention among the words; 0 learns what words mean much sooner.
        fusion_layers: of attention among the tokens of sentence and pictures.
        image_encoder: first convolutions: "own", or "imagenet": frozen maps of EfficientNet-Lite0.
        text_encoder: "own" words, or "minilm": a frozen sentence encoder.
        light: largest change of a picture's brightness and contrast, as a share.
        word_dropout: share of words that are hidden, so that a sentence is understood without each of them.
        state_dropout: share of windows whose numbers are hidden (their mean is shown), so that pictures are looked at.
    """

    ground: Sequence[str] = TOLD
    context: int = 96
    keypoints: int = 32
    pointers: int = 0
    heads: int = 4
    channels: Sequence[int] = (16, 32, 32)
    camera_tokens: int = 2
    patches: int = 0
    text_layers: int = 0
    fusion_layers: int = 1
    image_encoder: str = "own"
    text_encoder: str = "own"
    light: float = 0.1
    word_dropout: float = 0.1
    state_dropout: float = 0.0

    def check(self) -> None:
        """Refuse sizes that no network has."""
        require(self, context="[1, inf)", keypoints="[1, inf)", pointers="[0, inf)", heads="[1, inf)",
                channels="[1, inf)", camera_tokens="[1, inf)", patches="[0, inf)", text_layers="[0, inf)",
                fusion_layers="[0, inf)", light="[0, 1)", word_dropout="[0, 1)", state_dropout="[0, 1)")
        choose(self, image_encoder=IMAGES, text_encoder=TEXTS)
        if len(self.channels) < 3:
            raise SettingsError(f"algo.channels are three numbers or more, got {list(self.channels)}")
        if self.pointers > self.keypoints:
            raise SettingsError(f"algo.pointers={self.pointers} are keypoints, and algo.keypoints={self.keypoints}")
        if self.context % self.heads:
            raise SettingsError(f"algo.context={self.context} is no multiple of algo.heads={self.heads}")


@dataclass(frozen=True)
class VlaConfig(SeeingConfig, ChunkConfig):
    """Settings of vision-language-action policies, whatever their decoder.

    Args:
        signals: (): pictures, the instruction, and what the robot measures of itself, without velocities.
        ground: only those that the dataset has; of a run to begin with, those that it tells.
        shift: 0: where pictures tell places, moving them at random hides the places.
        policy: folder of a run to begin with, of the same algorithm or of algo=vla_grounding; "": new weights.
        take: of it: "all", with its scales, or the "prefix" alone: what sees and reads.
        tune: "all", or the "expert" alone: the prefix is frozen, and computed once for each sample.
        advantage: RECAP (arXiv 2511.14759): a token says whether a window's advantage is among the largest; deployed,
            the policy is asked for that. The dataset needs rewards or successes and failures.
        remember: "first": the expert is told the places of the first look too, those that the prefix tells at the first
            decision of an episode or of a sentence, before arm and hand hide things; it takes ``tune="expert"``.
            "none": what the prefix tells now is all.
        rest: windows that are learned of the rest at an episode's end, once its commands hardly change any more; None:
            all.
        plan: P, waypoints of the tool that the prefix must tell, with the boxes of target and place in a picture, by a
            head that does not reach the commands (:mod:`temporeal.policies.vla.plan.head`); 0: no such head.
        plan_step: control steps from a waypoint to the next.
        plan_weight: of the loss in that.
        plan_camera: whose pictures have the boxes; it stands still, where the dataset states.
        plan_sizes: half an edge of the cubes that stand for target and place, m.
    """

    updates: int = 4000
    batch: int = 96
    learning_rate: float = 3e-3
    shift: int = 0
    policy: str = ""
    take: str = "all"
    tune: str = "all"
    advantage: bool = False
    remember: str = "none"
    rest: int | None = None
    plan: int = 0
    plan_step: int = 8
    plan_weight: float = 0.1
    plan_camera: str = "front"
    plan_sizes: Sequence[float] = (0.03, 0.06)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check()
        choose(self, take=TAKEN, tune=TUNED, remember=REMEMBERED)
        require(self, rest="[0, inf)", plan="[0, inf)", plan_step="[1, inf)", plan_weight="[0, inf)",
                plan_sizes="(0, inf)")
        if len(self.plan_sizes) != len(TOLD):
            raise SettingsError(f"algo.plan_sizes are two lengths, of target and place, got {list(self.plan_sizes)}")
        if self.plan and self.shift:
            raise SettingsError("algo.shift moves pictures, and plans are boxes in them: algo.shift=0 or algo.plan=0")
        if self.tune == "expert" and not self.policy:
            raise SettingsError("algo.tune=expert trains the expert on an encoder that can see and read already: "
                                "algo.policy=RUN of algo=vla or algo=vla_grounding")
        if self.remember != "none" and self.tune != "expert":
            raise SettingsError(f"algo.remember={self.remember}: what is remembered is computed once, by an eye that "
                                "training does not change: algo.tune=expert, or algo.remember=none")


SIZES = ("context", "heads", "channels", "keypoints", "pointers", "camera_tokens", "patches", "text_layers",
         "fusion_layers", "image_encoder", "text_encoder")
"""Settings that the encoder's networks take their sizes from."""
