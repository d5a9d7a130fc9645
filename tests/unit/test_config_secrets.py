"""No secret is ever printed: not in errors, not in reprs, not in dumps."""

import json
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.config import Pipeline, PipelineFileError, load_pipeline

SECURED = """\
name: shop
kafka:
  brokers: ${BROKERS}
  client:
    sasl.mechanism: PLAIN
    sasl.username: ann
    sasl.password: ${PASSWORD}
    ssl.key.password: written-in-the-file
    ssl.certificate.location: /me.pem
    ssl.key.location: /me.pem
topics: [orders]
tables:
  - name: all
    where: topic = '${WORD}'
home: ${PLACE}/state
lake:
  catalog: {type: sql, uri: 'postgresql://ann:inside-a-uri@db/lake', token: '${TOKEN:-tok-default}'}
fleet: {warm: '${N}'}
policy: {params: {inner: {api_token: deep-token}}}
"""
ENV = {"BROKERS": "kafka-1:9092", "PASSWORD": "pa55word", "WORD": "hushhush", "PLACE": "/srv/private", "N": "3"}
SECRETS = [
    "pa55word",
    "hushhush",
    "kafka-1",
    "/srv/private",
    "written-in-the-file",
    "inside-a-uri",
    "tok-default",
    "deep-token",
]


def load(folder: Path, text: str = SECURED, env: dict[str, str] | None = None) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(text)
    return load_pipeline(file, env or ENV)


def test_the_real_values_are_there_for_the_program(tmp_path: Path) -> None:
    pipeline = load(tmp_path)
    assert pipeline.kafka.client["sasl.password"] == "pa55word"
    assert pipeline.kafka.brokers == "kafka-1:9092"
    assert pipeline.lake.warehouse == "/srv/private/state/warehouse"
    assert pipeline.fleet.warm == 3


def test_no_repr_and_no_dump_shows_a_secret(tmp_path: Path) -> None:
    pipeline = load(tmp_path)
    shown = [
        repr(pipeline),
        str(pipeline),
        repr(pipeline.kafka),
        str(pipeline.tables[0]),
        repr(pipeline.lake),
        repr(pipeline.policy),
        json.dumps(pipeline.describe()),
        pipeline.model_dump_json(),
        repr(pipeline.model_dump()),
        repr(pipeline.kafka.model_dump()),
        repr(pipeline.model_copy()),
    ]
    for text in shown:
        assert [secret for secret in SECRETS if secret in text] == []


def test_what_is_not_secret_is_still_described(tmp_path: Path) -> None:
    described = load(tmp_path).describe()
    assert described["kafka"]["client"] == {
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "***",
        "ssl.key.password": "***",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "***",
    }
    assert described["kafka"]["brokers"] == "***"
    assert described["fleet"]["warm"] == "***"
    assert described["fleet"]["max_consumers"] == 10
    assert described["lake"]["catalog"] == {"type": "sql", "uri": "postgresql://***@db/lake", "token": "***"}
    assert described["tables"][0]["schema"] is None


def test_a_clients_own_words_can_be_masked(tmp_path: Path) -> None:
    said = "login of ann with pa55word failed at postgresql://ann:inside-a-uri@db/lake (deep-token)"
    assert load(tmp_path).redact(said) == "login of ann with *** failed at postgresql://***@db/lake (***)"


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("home: /x\nslo: {latency_s: '${S}'}\n", {"S": "5 secretunits"}),
        ("slo: {quantile: '${S}'}\n", {"S": "secretnumber"}),
        ("start_from: ${S}\n", {"S": "secretchoice"}),
        ("topics_pattern: ${S}\n", {"S": "(?P<secretgroup>a)(?P<secretgroup>b)"}),
        ("metrics_port: '${S}'\n", {"S": "secretport"}),
        ("kafka: {brokers: '${S}'}\n", {"S": "secrethost"}),
        ("kafka: {brokers: 'h:1', client: {sasl.password: [secretlist]}}\n", {}),
        ("kafka: {brokers: 'h:1', client: {group.id: '${S}'}}\n", {"S": "secretgroup"}),
        (
            "kafka: {brokers: 'h:1', java_client: {sasl.mechanism: '${S}'}, client: {sasl.mechanism: '${S}'}}\n",
            {"S": "SECRETMECH"},
        ),
        ("topics: ['${S}']\ntables: [{name: a, topics: [secrettopik]}]\n", {"S": "secrettopic"}),
        ("topics: ['${S}', b]\ntables: [{name: a, topics: [b]}]\n", {"S": "secrettopic"}),
        ("tables: [{name: a, partition_by: ['${S}(x)']}]\n", {"S": "secrets"}),
        ("tables: [{name: a, format: avro, schema: '${S}'}]\n", {"S": '{"type": "record", "name": "secret-name"}'}),
        ("tables: [{name: a, format: avro, schema: '${S}'}]\n", {"S": "secret.avsc"}),
        ("tables: [{name: '${S}'}, {name: '${S}'}]\n", {"S": "secret.name"}),
    ],
)
def test_no_error_shows_what_came_from_the_environment(text: str, env: dict[str, str], tmp_path: Path) -> None:
    defaults = {
        "name": "name: shop\n",
        "kafka": "kafka: {brokers: 'h:1'}\n",
        "topics": "topics: [orders]\n",
        "tables": "tables: [{name: all}]\n",
    }
    whole = text + "".join(
        line for key, line in defaults.items() if not any(part.startswith(f"{key}:") for part in text.splitlines())
    )
    with pytest.raises(PipelineFileError) as refused:
        load(tmp_path, whole, env or {"UNUSED": ""})
    printed = "".join(traceback.format_exception(refused.value)).lower().replace("secrettopik", "")
    shown = [line for line in printed.splitlines() if "pipeline.yaml" in line]
    assert shown
    assert not any("secret" in line for line in shown)


def test_not_even_a_short_value_from_the_environment_is_shown(tmp_path: Path) -> None:
    text = "name: shop\nkafka: {brokers: 'h:1'}\ntopics: ['${S}', b]\ntables: [{name: a, topics: [b, xyy]}]\n"
    with pytest.raises(PipelineFileError) as refused:
        load(tmp_path, text, {"S": "xyz"})
    assert "xyz" not in str(refused.value).replace(str(tmp_path), "")
    assert len(refused.value.problems) == 2


def test_a_pipeline_made_in_python_does_not_echo_values_either() -> None:
    with pytest.raises(ValueError, match="brokers") as refused:
        Pipeline.model_validate({"name": "a", "kafka": {"brokers": "sup3rsecret"}, "tables": []})
    assert "sup3rsecret" not in str(refused.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=st.text(alphabet="abcXYZ019:/ .-_%", min_size=6, max_size=20).filter(lambda text: text == text.strip()))
def test_no_password_survives_anywhere(secret: str, tmp_path: Path) -> None:
    pipeline = load(tmp_path, env=ENV | {"PASSWORD": f"Q{secret}Q", "WORD": f"Q{secret}Q"})
    assert f"Q{secret}Q" not in repr(pipeline) + json.dumps(pipeline.describe())
    assert pipeline.redact(f"said {f'Q{secret}Q'}") == "said ***"
