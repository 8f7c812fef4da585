"""Where learners are: packages whose modules are algorithms."""

LEARNERS = ("temporeal.policies.algos", "temporeal.policies.imitation", "temporeal.policies.offline")
"""Their modules have ``train``, and ``load_policy`` or ``load_graph``."""
