"""What a loaded pipeline answers: which topics, which tables, which client settings."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from headgate.config import (
    PartitionField,
    Pipeline,
    Table,
    java_settings,
    kafka_python_settings,
    librdkafka_settings,
)
from headgate.config.pipeline import Kafka
from headgate.model import TopicPartition
from headgate.model.messages import Landed, LedgerState


def pipeline(**settings: Any) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "shop", "kafka": {"brokers": "k:9092"}, "topics": ["orders"], "tables": [{"name": "all"}]} | settings
    )


def connected(client: dict[str, str], **kafka: Any) -> Pipeline:
    return pipeline(kafka={"brokers": "k:9092", "client": client, **kafka})


def test_a_listed_topic_and_one_that_matches_as_a_whole_belong_to_the_pipeline() -> None:
    shop = pipeline(topics_pattern="click-[a-z]+")
    assert shop.matches("orders")
    assert shop.matches("click-web")
    assert not shop.matches("click-web-2")
    assert not shop.matches("a-click-web")


def test_the_widest_pattern_leaves_kafkas_and_headgates_own_topics_alone() -> None:
    shop = pipeline(topics_pattern=".*")
    assert shop.matches("anything")
    assert not shop.matches("__consumer_offsets")
    assert not shop.matches("headgate.shop.control")
    assert pipeline(topics=["__consumer_offsets"]).matches("__consumer_offsets")


def test_a_record_goes_to_every_table_that_takes_its_topic() -> None:
    shop = pipeline(
        topics=["orders", "payments"],
        topics_pattern="click-.*",
        tables=[
            {"name": "all"},
            {"name": "a.orders", "topics": ["orders"]},
            {"name": "c", "topics_pattern": "click-.*"},
        ],
    )
    assert [table.name for table in shop.tables_of("orders")] == ["default.all", "a.orders"]
    assert [table.name for table in shop.tables_of("payments")] == ["default.all"]
    assert [table.name for table in shop.tables_of("click-x")] == ["default.all", "default.c"]
    assert shop.tables_of("strangers") == ()


def test_of_a_ledger_only_what_the_table_takes_now_counts() -> None:
    shop = pipeline(topics=["orders", "payments"], tables=[{"name": "a.orders", "topics": ["orders"]}, {"name": "all"}])

    def landed(table: str) -> Mapping[TopicPartition, int]:
        positions = [Landed("orders", 0, 7), Landed("payments", 0, 8), Landed("gone", 0, 9)]
        return shop.landed(LedgerState(table, 0, "c", 1, 1, True, positions, (), 0))

    assert landed("a.orders") == {TopicPartition("orders", 0): 7}
    assert landed("default.all") == {TopicPartition("orders", 0): 7, TopicPartition("payments", 0): 8}
    assert landed("a.table_of_earlier_days") == {}


@pytest.mark.parametrize(
    ("text", "column", "transform"),
    [
        ("day(_timestamp)", "_timestamp", "day"),
        ("hour( at )", "at", "hour"),
        ("identity(country)", "country", "identity"),
        ("country", "country", "identity"),
    ],
)
def test_partitioning_is_read_from_a_text(text: str, column: str, transform: str) -> None:
    (field,) = Table(name="t", partition_by=[text]).partition_by
    assert field == PartitionField.model_validate({"column": column, "transform": transform})
    assert str(field) == f"{transform}({column})"


def test_nothing_can_be_changed_after_loading() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(pipeline().kafka, "brokers", "other:9092")  # noqa: B010 — mypy refuses the plain assignment


def test_the_group_is_the_pipelines_unless_it_is_named() -> None:
    assert pipeline().group == "headgate-shop"
    assert connected({}, group="mine").group == "mine"


def test_fetch_tuning_reaches_both_clients_in_their_own_names() -> None:
    shop = connected(
        {"client.id": "x"},
        fetch_max_bytes="900 kB",
        max_partition_fetch_bytes=900_000,
        fetch_wait_s="500 ms",
        session_timeout_s="10 s",
        isolation="read_uncommitted",
    )
    shared = {
        "bootstrap.servers": "k:9092",
        "client.id": "x",
        "fetch.max.bytes": "900000",
        "max.partition.fetch.bytes": "900000",
        "session.timeout.ms": "10000",
        "isolation.level": "read_uncommitted",
    }
    ours = {"log_level": "2", "reconnect.backoff.max.ms": "1000"}
    assert librdkafka_settings(shop) == {"bootstrap.servers": "k:9092", "client.id": "x", **ours}
    assert java_settings(shop) == shared | {"fetch.max.wait.ms": "500"}


def test_confluent_kafka_accepts_the_settings() -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

    Consumer({**librdkafka_settings(pipeline()), "group.id": "g"}).close()
    Producer(librdkafka_settings(pipeline()))
    AdminClient({**librdkafka_settings(pipeline())})


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
        ("scram-sha-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_and_password_become_a_jaas_line_for_java(key: str, mechanism: str, module: str) -> None:
    client = {"security.protocol": "sasl_ssl", key: mechanism, "sasl.username": "ann", "sasl.password": 'a"b\\c'}
    java = java_settings(connected(client))
    assert java["security.protocol"] == "SASL_SSL"
    assert java["sasl.mechanism"] == mechanism.upper()
    assert java["sasl.jaas.config"] == f'{module} required username="ann" password="a\\"b\\\\c";'
    assert not {"sasl.username", "sasl.password", "sasl.mechanisms"} & java.keys()
    assert librdkafka_settings(connected(client))["sasl.password"] == 'a"b\\c'


def test_certificates_become_pem_stores_for_java() -> None:
    java = java_settings(
        connected(
            {
                "ssl.ca.location": "/etc/ca.pem",
                "ssl.certificate.location": "/etc/me.pem",
                "ssl.key.location": "/etc/me.pem",
                "ssl.key.password": "pw",
                "ssl.endpoint.identification.algorithm": "none",
            }
        )
    )
    assert (
        java.items()
        >= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/etc/ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/etc/me.pem",
            "ssl.key.password": "pw",
            "ssl.endpoint.identification.algorithm": "",
        }.items()
    )
    assert not {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location"} & java.keys()


def test_certificates_given_as_text_reach_java_as_text() -> None:
    java = java_settings(connected({"ssl.ca.pem": "CA", "ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY"}))
    assert java["ssl.truststore.certificates"] == "CA"
    assert java["ssl.keystore.certificate.chain"] == "CERT"
    assert java["ssl.keystore.key"] == "KEY"


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ({"ssl.certificate.location": "/a.pem", "ssl.key.location": "/b.pem"}, "put both PEMs into one"),
        ({"ssl.certificate.location": "/a.pem"}, "put both PEMs into one"),
        ({"ssl.key.password": "x"}, "needs ssl.key.location"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "add sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "u"}, "needs both sasl.username and sasl.password"),
        ({"sasl.username": "u", "sasl.password": "p"}, "needs sasl.mechanism"),
        ({"enable.ssl.certificate.verification": "false"}, "give the broker's certificate"),
    ],
)
def test_what_java_cannot_be_told_is_refused_with_the_way_out(client: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Kafka(brokers="k:9092", client=client)


def test_explicit_java_settings_are_the_way_out_and_win() -> None:
    shop = connected(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "ssl.certificate.location": "/a.pem",
            "ssl.key.location": "/b.pem",
            "socket.keepalive.enable": "true",
        },
        java_client={"sasl.jaas.config": "mine;", "ssl.keystore.location": "/both.pem", "ssl.keystore.type": "PEM"},
    )
    java = java_settings(shop)
    assert java["sasl.mechanism"] == "OAUTHBEARER"
    assert java["sasl.jaas.config"] == "mine;"
    assert java["ssl.keystore.location"] == "/both.pem"
    assert not {"sasl.oauthbearer.method", "ssl.key.location", "socket.keepalive.enable"} & java.keys()
    assert "sasl.jaas.config" not in librdkafka_settings(shop)


def test_kafka_python_is_told_the_same_in_its_names() -> None:
    shop = connected(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
            "ssl.ca.location": "/ca.pem",
        }
    )
    assert kafka_python_settings(shop) == {
        "bootstrap_servers": ["k:9092"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
        "ssl_cafile": "/ca.pem",
    }


@pytest.mark.parametrize(
    ("spark", "says"),
    [
        ({"conf": {"spark.sql.session.timeZone": "Europe/Lisbon"}}, "must leave spark.sql.session.timeZone at UTC"),
        ({"conf": {"spark.sql.parquet.outputTimestampType": "INT96"}}, "at TIMESTAMP_MICROS"),
        ({"remote": "sc://spark:15002", "conf": {"spark.executor.memory": "2g"}}, "set spark.executor.memory on the"),
    ],
)
def test_spark_settings_that_would_spoil_the_files_or_have_no_effect_are_refused(
    spark: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        pipeline(consumer={"spark": spark})
    pipeline(consumer={"spark": {"conf": {"spark.executor.memory": "2g", "spark.sql.session.timeZone": "UTC"}}})
