"""The loops by name, as a configuration writes it: ``loop: arms``."""

from collections.abc import Mapping

from bo_robust.experiments.loop import Loop
from bo_robust.experiments.loop_arms import ArmsLoop
from bo_robust.experiments.loop_botorch import DesignsLoop
from bo_robust.experiments.loop_conditions import ConditionsLoop

LOOPS: Mapping[str, Loop] = {"arms": ArmsLoop(), "botorch": DesignsLoop(), "conditions": ConditionsLoop()}
