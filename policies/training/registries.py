"""Where learners are: packages whose modules are algorithms."""

FROM_DATA = ("temporeal.policies.imitation", "temporeal.policies.offline", "temporeal.policies.progress")
LEARNERS = ("temporeal.policies.algos", *FROM_DATA)
"""Their modules have ``train``, and one of ``load_policy``, ``load_graph``, ``load_chunks`` and ``load_progress``."""
