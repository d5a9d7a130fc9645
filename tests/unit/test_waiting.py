from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.loader import load_pipeline
from headgate.consumer.waiting import Waiting
from headgate.kafka.offsets import topic_ids
from headgate.model import TopicPartition
from tests.ports import free_port


@pytest.fixture(scope="module")
def waiting_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("waiting") / "pipeline.yaml"
    file.write_text("name: w\nkafka: {brokers: 127.0.0.1:1}\ntopics: [a, b]\ntables: [{name: lake.t}]\n")
    return file


cycles = st.lists(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 4)), st.floats(1, 1e6), min_size=1, max_size=4
    ),
    min_size=1,
    max_size=6,
)


@given(cycles=cycles)
def test_a_partition_that_was_never_read_is_taken_for_the_mean_of_its_topic(
    waiting_file: Path, cycles: list[dict[TopicPartition, float]]
) -> None:
    waiting = Waiting(load_pipeline(waiting_file), AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}))
    for sizes in cycles:
        waiting.took(0, sizes)
    read = {partition for sizes in cycles for partition in sizes}
    for topic in {partition.topic for partition in read}:
        known = [waiting.measured_size(p) for p in read if p.topic == topic]
        assert waiting.expected_size(TopicPartition(topic, 99)) == pytest.approx(sum(known) / len(known))


def test_a_topic_that_nobody_answers_for_is_not_one_that_is_gone() -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0})
    ids = topic_ids(admin, ["t"], deadline_s=1)
    assert (ids.known, list(ids.unanswered)) == ({}, ["t"])
