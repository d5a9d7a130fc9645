"""For ordinary consumer groups: members that ask a controller who gets what, and the controller that answers.

A member's process imports only what is named here; nothing of it needs Spark.
"""

from headgate.groups.assignor import PlannedAssignor
from headgate.groups.member import PlannedConsumer

__all__ = ["PlannedAssignor", "PlannedConsumer"]
