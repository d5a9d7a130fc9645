"""Everything Headgate raises on purpose, as one tree.

    HeadgateError
    ├── SetupError              this machine lacks something (Java, disk, a free port, jars)
    ├── ConfigError             the pipeline cannot be used as it is written
    │   └── PipelineFileError   ... with file, line and field of each problem (config.problems)
    ├── KafkaUnavailable        the brokers did not answer in time
    │   └── LeftUnderWay        ... while partitions are moved, which goes on (kafka.reassign)
    ├── NotAMessage             a record on an internal topic that nobody of us wrote; readers go on (kafka.codec)
    ├── LakeError               the catalog or the warehouse refused
    │   └── CommitConflict      someone else committed first; reload the ledger and look again
    ├── ConsumerError           a cycle could not be completed
    │   └── SparkLost           ... nor can any later one: the consumer ends and is replaced
    ├── FleetError              a consumer could not be started or stopped
    ├── ForwardingError         a collector's record cannot be forwarded; nothing from it on is committed
    ├── ControllerUnreachable   a consumer group's controller did not answer; members go on without it (groups.wire)
    ├── OutOfSync               the controller's view and the fleet differ; synchronise again
    └── Superseded              another life of this consumer or controller took over; end without acting
        └── Outdated            ... of a newer version of Headgate, whose messages this one cannot read

Each message tells the user what to do next. Nothing here is raised for a bug: those are ordinary exceptions.
"""


class HeadgateError(Exception):
    """Something the user can act on; printed as one line, without a traceback."""

    exit_code = 1


class SetupError(HeadgateError):
    """This machine lacks something Headgate needs; the message says how to get it."""

    exit_code = 3


class ConfigError(HeadgateError):
    """The pipeline file cannot be used; the message names file, line and field."""

    exit_code = 2


class KafkaUnavailable(HeadgateError):
    """The brokers did not answer within the deadline."""

    exit_code = 4


class LakeError(HeadgateError):
    """The catalog or the warehouse refused."""

    exit_code = 5


class CommitConflict(LakeError):
    """Another committer was first: reload the ledger and check every announcement again."""


class ConsumerError(HeadgateError):
    """A cycle could not be completed; the ledger still says where to start again."""


class SparkLost(ConsumerError):
    """The session's JVM or its folder is gone: no later cycle can work, so the consumer ends and is replaced."""


class FleetError(HeadgateError):
    """A consumer could not be started or stopped."""


class ForwardingError(HeadgateError):
    """A collector's record cannot be forwarded, however often it is tried; nothing from it on is committed."""


class OutOfSync(HeadgateError):
    """What the controller believes and what the fleet reports differ; synchronise before acting."""


class Superseded(HeadgateError):
    """Another life of this consumer, or a newer controller of this pipeline, took over; this one must not act."""


class Outdated(Superseded):
    """A newer version of Headgate is at work on this pipeline; this one cannot understand it and must not act."""

    exit_code = 6
