"""A wrong pipeline file names file, line, field and what to write instead, for every mistake at once."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.config import Pipeline, PipelineFileError, Problem, load_pipeline
from headgate.errors import ConfigError

GOOD = """\
name: shop
kafka:
  brokers: localhost:9092
topics: [orders, payments]
tables:
  - name: shop.all
"""


def load(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return load_pipeline(file, env or {})


def problems(folder: Path, text: str, env: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(PipelineFileError) as refused:
        load(folder, text, env)
    assert isinstance(refused.value, ConfigError)
    assert str(refused.value).splitlines() == [str(problem) for problem in refused.value.problems]
    return refused.value.problems


def test_the_shortest_file_gets_the_published_defaults(tmp_path: Path) -> None:
    pipeline = load(tmp_path, GOOD)
    assert pipeline.group == "headgate-shop"
    assert pipeline.home == tmp_path / ".headgate" / "shop"
    assert pipeline.lake.warehouse == str(tmp_path / ".headgate/shop/warehouse")
    assert pipeline.lake.catalog == {"type": "sql", "uri": f"sqlite:///{tmp_path}/.headgate/shop/catalog.db"}
    assert pipeline.file == tmp_path / "pipeline.yaml"
    assert pipeline.folder == tmp_path
    # L-2, L-3, L-7
    assert pipeline.consumer.batch_bytes == 5_000_000
    assert pipeline.consumer.wait_s == 1
    assert pipeline.policy.consumer_capacity_bytes_per_s == 2_000_000
    assert pipeline.policy.packing_capacity_bytes_per_s == 1_500_000
    assert pipeline.policy.packer == "repair"
    assert pipeline.monitor.window_s == pipeline.monitor.min_span_s == 30


def test_a_file_opened_through_a_link_has_the_same_home_warehouse_and_catalog(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    directly = load(tmp_path / "real", GOOD)
    through = load_pipeline(tmp_path / "link" / "pipeline.yaml")
    assert (through.home, through.lake) == (directly.home, directly.lake)
    assert through.lake.warehouse == f"{tmp_path}/real/.headgate/shop/warehouse"


def test_the_example_in_the_repository_loads(request: pytest.FixtureRequest) -> None:
    pipeline = load_pipeline(request.config.rootpath / "examples" / "pipeline.yaml", {})
    assert pipeline.kafka.brokers == "localhost:9092"
    assert [str(field) for field in pipeline.tables[1].partition_by] == ["identity(country)", "hour(_timestamp)"]


# Each: what stands in place of or after the good file, the line, the field, and part of the message.
WRONG = {
    "unknown top-level key": (GOOD + "fleat: {}\n", 7, "fleat", "unknown key; did you mean fleet?"),
    "unknown nested key": (
        GOOD + "consumer:\n  spark:\n    mastre: local\n",
        9,
        "consumer.spark.mastre",
        "did you mean master?",
    ),
    "unknown key of a table": (GOOD + "    fromat: json\n", 7, "tables.0.fromat", "did you mean format?"),
    "a key of another section": (GOOD + "batch_bytes: 5 MB\n", 7, "batch_bytes", "it belongs under consumer"),
    "a key of nobody": (GOOD + "slo:\n  zzz: 1\n", 8, "slo.zzz", "valid here are latency_s, quantile"),
    "unit of another kind": (GOOD + "consumer: {wait_s: 5 MB}\n", 7, "consumer.wait_s", "allowed are ms, s, min, h, d"),
    "misspelt unit": (GOOD + "lake:\n  commit_interval_s: 5 sec\n", 8, "lake.commit_interval_s", "(got '5 sec')"),
    "negative quantity": (GOOD + "consumer:\n  batch_bytes: -5\n", 8, "consumer.batch_bytes", "greater than 0"),
    "no number at all": (GOOD + "consumer:\n  batch_bytes: much\n", 8, "consumer.batch_bytes", "start with a number"),
    "duplicate key": (GOOD + "name: again\n", 7, "name", "is given twice; the first is on line 1"),
    "duplicate nested key": (
        GOOD + "slo:\n  latency_s: 1\n  latency_s: 2\n",
        9,
        "slo.latency_s",
        "the first is on line 8",
    ),
    "missing variable": (GOOD + "home: ${NOWHERE}/x\n", 7, "home", "environment variable NOWHERE is not set"),
    "malformed variable": (GOOD + "home: ${NO WHERE}\n", 7, "home", "write $${ for a plain one"),
    "unclosed variable": (GOOD + "home: ${NO\n", 7, "home", "write $${ for a plain one"),
    "tag": (GOOD + "home: !!binary aGk=\n", 7, "home", "has the tag binary"),
    "merge key": (GOOD + "slo:\n  <<: {quantile: 0.5}\n", 8, "slo", "merge keys (<<) are not supported"),
    "alias to itself": (GOOD + "policy:\n  params: &a\n    b: *a\n", 9, "policy.params.b", "refers to itself"),
    "not a mapping": (GOOD + "fleet: threads\n", 7, "fleet", "must be a mapping"),
    "empty section": (GOOD + "fleet:\n", 7, "fleet", "must be a mapping"),
    "number for a text": (GOOD.replace("name: shop\n", "name: 12\n"), 1, "name", "must be a text"),
    "text for a list": (GOOD.replace("[orders, payments]", "orders"), 4, "topics", "must be a list"),
    "text for a number": (GOOD + "fleet:\n  warm: some\n", 8, "fleet.warm", "must be a whole number (got 'some')"),
    "choice": (GOOD + "start_from: erliest\n", 7, "start_from", "did you mean earliest?"),
    "name with a space": (GOOD.replace("name: shop\n", "name: my shop\n"), 1, "name", "may hold only letters"),
    "name missing": (GOOD.replace("name: shop\n", ""), 1, "name", "is required"),
    "brokers missing": (GOOD.replace("brokers: localhost:9092", "group: g"), 2, "kafka.brokers", "is required"),
    "broker without port": (GOOD.replace(":9092", ""), 3, "kafka.brokers", "must be host:port"),
    "broker with a port too high": (GOOD.replace("9092", "99999"), 3, "kafka.brokers", "must be host:port"),
    "no topics": (GOOD.replace("[orders, payments]", "[]"), 1, "topics_pattern", "say which topics to ingest"),
    "no topic name": (GOOD.replace("payments", "'pay ments'"), 4, "topics.1", "is not a topic name"),
    "topic twice": (GOOD.replace("payments", "orders"), 4, "topics.1", "is listed twice"),
    "regular expression": (
        GOOD + "topics_pattern: 'a('\n",
        7,
        "topics_pattern",
        "is not a regular expression: missing",
    ),
    "no tables": (GOOD.replace("\n  - name: shop.all", " []"), 5, "tables", "needs at least one table"),
    "table name": (GOOD.replace("shop.all", "shop..all"), 6, "tables.0.name", "must be namespace.table"),
    "reserved table name": (GOOD.replace("shop.all", "a__rejected"), 6, "tables.0.name", "must not end in __rejected"),
    "same table twice": (
        GOOD.replace("shop.all", "all") + "  - name: default.all\n",
        7,
        "tables.1.name",
        "is the name of an earlier table",
    ),
    "table's topic unknown": (
        GOOD + "  - name: b\n    topics:\n      - payments\n      - ordrs\n",
        10,
        "tables.1.topics.1",
        "is not among the pipeline's topics; did you mean 'orders'?",
    ),
    "topic without a table": (
        GOOD + "    topics: [orders]\n",
        5,
        "tables",
        "no table takes these topics of the pipeline: 'payments'",
    ),
    "json without schema": (GOOD + "    format: json\n", 6, "tables.0.schema", "is required for format json"),
    "avro without schema": (GOOD + "    format: avro\n", 6, "tables.0.schema", "is required for format avro"),
    "raw with schema": (GOOD + "    schema: id INT\n", 7, "tables.0.schema", "has no meaning for format raw"),
    "avro that is not JSON": (
        GOOD + "    format: avro\n    schema: '{\"type\": '\n",
        8,
        "tables.0.schema",
        "is not JSON: Expecting value",
    ),
    "avro file missing": (
        GOOD + "    format: avro\n    schema: nowhere.avsc\n",
        8,
        "tables.0.schema",
        "nor a readable .avsc file",
    ),
    "avro with an unknown type": (
        GOOD + "    format: avro\n    schema: |\n"
        '      {"type": "record", "name": "r", "fields": [{"name": "a", "type": "strnig"}]}\n',
        8,
        "tables.0.schema",
        "is not a valid Avro schema: UnknownType strnig",
    ),
    "avro that is no record": (
        GOOD + "    format: avro\n    schema: '[\"int\"]'\n",
        8,
        "tables.0.schema",
        "must be an Avro record",
    ),
    "avro with reserved columns": (
        GOOD + "    format: avro\n    schema: |\n"
        '      {"type": "record", "name": "r", "fields": [{"name": "_offset", "type": "int"},\n'
        '       {"name": "id", "type": "int"}, {"name": "_partition", "type": "int"}]}\n',
        8,
        "tables.0.schema",
        "Iceberg's reserved columns: _offset, _partition",
    ),
    "framing without avro": (GOOD + "    avro_framing: confluent\n", 7, "tables.0.avro_framing", "format avro only"),
    "transform without function": (
        GOOD + "    transform: mod.fun\n",
        7,
        "tables.0.transform",
        "package.module:function",
    ),
    "transform and sql": (
        GOOD + "    transform: m:f\n    sql: SELECT 1 FROM input\n",
        8,
        "tables.0.sql",
        "choose one of the two",
    ),
    "partition transform": (
        GOOD + "    partition_by: [hours(_timestamp)]\n",
        7,
        "tables.0.partition_by.0",
        "did you mean hour?",
    ),
    "partition syntax": (GOOD + "    partition_by: ['day(a']\n", 7, "tables.0.partition_by.0", "must look like"),
    "partitioned by day and hour": (
        GOOD + "    partition_by: [day(a), hour(a)]\n",
        7,
        "tables.0.partition_by.1",
        "a second time",
    ),
    "packed fuller than sustained": (
        GOOD + "policy:\n  consumer_capacity_bytes_per_s: 1 MB/s\n  packing_capacity_bytes_per_s: 2 MB/s\n",
        9,
        "policy.packing_capacity_bytes_per_s",
        "must not exceed consumer_capacity_bytes_per_s",
    ),
    "default packing above a lower capacity": (
        GOOD + "policy:\n  consumer_capacity_bytes_per_s: 1 MB/s\n",
        7,
        "policy.packing_capacity_bytes_per_s",
        "must not exceed consumer_capacity_bytes_per_s",
    ),
    "no cycle ahead": (
        GOOD + "consumer:\n  max_uncommitted_cycles: 0\n",
        8,
        "consumer.max_uncommitted_cycles",
        "must be at least 1",
    ),
    "span beyond the window": (
        GOOD + "monitor:\n  window_s: 10 s\n",
        7,
        "monitor.min_span_s",
        "must not exceed window_s (10 s)",
    ),
    "window of one sample": (
        GOOD + "monitor: {poll_s: 20 s}\n",
        7,
        "monitor.window_s",
        "must be at least twice poll_s (20 s)",
    ),
    "heartbeat beyond its deadline": (
        GOOD + "consumer:\n  heartbeat_s: 20 s\n",
        1,
        "controller.heartbeat_deadline_s",
        "must exceed consumer.heartbeat_s (20 s)",
    ),
    "stale at once": (
        GOOD + "controller:\n  stale_after_s: 1\n",
        8,
        "controller.stale_after_s",
        "must exceed monitor.poll_s (1 s)",
    ),
    "swept before committed": (
        GOOD + "lake:\n  orphan_age_s: 119 s\n",
        1,
        "consumer.commit_deadline_s",
        "must be at most half of lake.orphan_age_s (119 s), together with lake.commit_interval_s",
    ),
    "swept before the next commit": (
        GOOD + "lake:\n  orphan_age_s: 10 min\n  commit_interval_s: 250 s\n",
        1,
        "consumer.commit_deadline_s",
        "half of lake.orphan_age_s (600 s), together with lake.commit_interval_s",
    ),
    "quantile": (GOOD + "slo:\n  quantile: 99\n", 8, "slo.quantile", "must be less than 1"),
    "port": (GOOD + "metrics_port: 70000\n", 7, "metrics_port", "must be at most 65535"),
    "own client setting": (
        GOOD.replace("9092", "9092\n  client:\n    group.id: x"),
        5,
        "kafka.client.group.id",
        "what decides it is kafka.group",
    ),
    "untranslatable login": (
        GOOD.replace("9092", "9092\n  client:\n    sasl.mechanism: GSSAPI"),
        4,
        "kafka.client",
        "add sasl.jaas.config",
    ),
    "list for a client setting": (
        GOOD.replace("9092", "9092\n  client:\n    debug: [a]"),
        5,
        "kafka.client.debug",
        "must be a text",
    ),
}


@pytest.mark.parametrize("case", list(WRONG), ids=lambda case: case.replace(" ", "_"))
def test_a_mistake_is_named_with_its_line_and_field(case: str, tmp_path: Path) -> None:
    text, line, field, message = WRONG[case]
    (problem,) = problems(tmp_path, text)
    assert (problem.line, problem.field) == (line, field)
    assert message in problem.message
    assert str(problem).startswith(f"{tmp_path / 'pipeline.yaml'}:{line}: {field}: ")


def test_all_mistakes_are_listed_in_the_files_order(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
        name: shop
        kafka:
          brokers: localhost
          clinet: {}
        topics: [orders, lost]
        tables:
          - name: a
            topics: [order]
            format: json
          - name: default.a
            topics: [orders]
            where: 7
        slo: {latency_s: 1 parsec}
        policy:
          packing_capacity_bytes_per_s: 3 MB/s
          timeout_policy: never
        home: ${HOME_OF_NOBODY}
        name: twice
        """,
    )
    assert [(problem.line, problem.field) for problem in found] == [
        (3, "kafka.brokers"),
        (4, "kafka.clinet"),
        (7, "tables.0.schema"),
        (8, "tables.0.topics.0"),
        (10, "tables.1.name"),
        (12, "tables.1.where"),
        (13, "slo.latency_s"),
        (15, "policy.packing_capacity_bytes_per_s"),
        (16, "policy.timeout_policy"),
        (17, "home"),
        (18, "name"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: a\n  b: c\n", 2, "is not YAML: mapping values are not allowed here"),
        ("name: a\nkafka: {brokers: [}\n", 2, "is not YAML"),
        ("name: a\n\tb: c\n", 2, "is not YAML"),
        ("name: a\n---\nname: b\n", 2, "is not YAML: expected a single document"),
        ("name: *nobody\n", 1, "is not YAML"),
        ("- a\n- b\n", 1, "must be a mapping"),
        ("just words\n", 1, "must be a mapping"),
        ("", 0, "is empty"),
        ("# only a comment\n", 0, "is empty"),
    ],
)
def test_what_is_not_a_mapping_in_yaml_is_refused_with_its_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.line == line
    assert message in problem.message


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        load_pipeline(tmp_path / "nowhere.yaml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_pipeline(tmp_path, {})
    (tmp_path / "latin.yaml").write_bytes(b"name: a\nkafka: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: is not UTF-8 text"):
        load_pipeline(tmp_path / "latin.yaml", {})


def test_words_that_yaml_once_took_for_other_things_stay_words(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path,
        """\
        name: 2024-01-01
        kafka: {brokers: "localhost:9092", client: {a: on, b: true, c: 12, d: 12:30, e: 0.5}}
        topics: [no, on, y]
        tables: [{name: off, evolve: false}]
        """,
    )
    assert pipeline.name == "2024-01-01"
    assert pipeline.topics == ("no", "on", "y")
    assert pipeline.tables[0].name == "default.off"
    assert pipeline.tables[0].evolve is False
    assert pipeline.kafka.client == {"a": "on", "b": "true", "c": "12", "d": "12:30", "e": "0.5"}


def test_the_environment_fills_in_texts_and_numbers(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path,
        GOOD.replace("localhost:9092", "${HOST}:${PORT:-9093}")
        + "fleet: {max_consumers: '${MOST}', warm: '${SPARE:-2}'}\n"
        + "policy: {params: {text: '$${HOST} ${EMPTY:-full}'}}\n",
        {"HOST": "kafka-1", "MOST": "3", "EMPTY": ""},
    )
    assert pipeline.kafka.brokers == "kafka-1:9093"
    assert pipeline.fleet.max_consumers == 3
    assert pipeline.fleet.warm == 2
    assert pipeline.policy.params == {"text": "${HOST} full"}


def test_relative_paths_start_at_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    schema = '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}'
    (tmp_path / "order.avsc").write_text(schema)
    (tmp_path / "pipeline.yaml").write_text(
        GOOD + "    format: avro\n    schema: order.avsc\nhome: state\nlake: {warehouse: data}\n"
    )
    pipeline = load_pipeline(Path("..") / "pipeline.yaml", {})
    assert pipeline.home.resolve() == tmp_path / "state"
    assert Path(pipeline.lake.warehouse).resolve() == tmp_path / "data"
    assert pipeline.tables[0].schema_ == schema


def test_a_lake_elsewhere_is_left_as_it_is(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path,
        GOOD + "lake:\n  warehouse: s3://bucket/lake\n  catalog: {type: rest, uri: 'http://c', warehouse: prod}\n",
    )
    assert pipeline.lake.warehouse == "s3://bucket/lake"
    assert pipeline.lake.catalog_properties == {"type": "rest", "uri": "http://c", "warehouse": "prod"}


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from("abk:{}[]-,'\"\n \t#&*!$<>|12"), max_size=60))
def test_no_text_breaks_the_loader(text: str, tmp_path: Path) -> None:
    file = tmp_path / "any.yaml"
    file.write_text(text)
    with pytest.raises(PipelineFileError):  # none of these can be a whole pipeline: there is no "n" for a name
        load_pipeline(file, {})
