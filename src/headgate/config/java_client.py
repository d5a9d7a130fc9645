"""Kafka client settings in librdkafka's words, said in the Java client's words (the one inside Spark).

Most settings share one name. Credentials do not: librdkafka takes a user and a password where Java takes a JAAS line,
and PEM files where Java takes key stores.
"""

from collections.abc import Mapping

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_ONLY_LIBRDKAFKA = (
    "api.version.",
    "broker.",
    "builtin.",
    "debug",
    "enable.random",
    "log",
    "queued.",
    "socket.",
    "topic.",
)
"""librdkafka's own tuning; the Java client would warn about each."""


class Untranslatable(ValueError):
    """A librdkafka setting without a Java counterpart; the message names the `java_client` settings to add."""


def to_java(client: Mapping[str, str], java_client: Mapping[str, str]) -> dict[str, str]:
    """`client` in Java's names, with `java_client` on top; what that gives explicitly need not be translatable."""
    rest = {key: value for key, value in client.items() if not key.startswith(_ONLY_LIBRDKAFKA)}
    java: dict[str, str] = {}
    if "security.protocol" in rest:
        java["security.protocol"] = rest.pop("security.protocol").upper()
    java |= _sasl(rest, java_client)
    java |= _trust(rest, java_client)
    java |= _identity(rest, java_client)
    if rest.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        rest["ssl.endpoint.identification.algorithm"] = ""  # what Java calls "do not check the host name"
    return {**rest, **java, **java_client}


def _sasl(rest: dict[str, str], given: Mapping[str, str]) -> dict[str, str]:
    mechanisms = [rest.pop(key) for key in ("sasl.mechanisms", "sasl.mechanism") if key in rest]
    user, password = rest.pop("sasl.username", None), rest.pop("sasl.password", None)
    own = [key for key in rest if key.startswith(("sasl.oauthbearer.", "sasl.kerberos.")) or key == "enable.sasl"]
    for key in own:
        rest.pop(key)
    if not mechanisms:
        if user is not None and "sasl.jaas.config" not in given:
            raise Untranslatable("sasl.username needs sasl.mechanism beside it (PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512)")
        return {}
    mechanism = mechanisms[0].upper()
    java = {"sasl.mechanism": mechanism}
    if "sasl.jaas.config" in given or "sasl.jaas.config" in rest:
        return java
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise Untranslatable(
            f"sasl.mechanism {mechanism!r} cannot be translated for Spark's Java client: add sasl.jaas.config "
            "(and the callback handler it needs) under kafka.java_client"
        )
    if user is None or password is None:
        raise Untranslatable(f"sasl.mechanism {mechanism!r} needs both sasl.username and sasl.password")
    return java | {"sasl.jaas.config": f"{module} required username={_quoted(user)} password={_quoted(password)};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _trust(rest: dict[str, str], given: Mapping[str, str]) -> dict[str, str]:
    location, pem = rest.pop("ssl.ca.location", None), rest.pop("ssl.ca.pem", None)
    verifies = rest.pop("enable.ssl.certificate.verification", "true").lower()
    if "ssl.truststore.location" in given or "ssl.truststore.certificates" in given:
        return {}
    if verifies == "false":
        raise Untranslatable(
            "enable.ssl.certificate.verification: false has no counterpart in Spark's Java client: give the broker's "
            "certificate as ssl.ca.location instead"
        )
    if pem is not None:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem}
    if location in (None, "probe"):  # "probe" lets librdkafka look for the system's certificates; Java has its own
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(location)}


def _identity(rest: dict[str, str], given: Mapping[str, str]) -> dict[str, str]:
    certificate, key = rest.pop("ssl.certificate.location", None), rest.pop("ssl.key.location", None)
    certificate_pem, key_pem = rest.pop("ssl.certificate.pem", None), rest.pop("ssl.key.pem", None)
    password = rest.get("ssl.key.password")
    if "ssl.keystore.location" in given or "ssl.keystore.key" in given:
        return {}
    if "ssl.keystore.location" in rest:
        return {"ssl.keystore.type": "PKCS12"}  # the only kind librdkafka reads
    if certificate_pem is not None and key_pem is not None:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate_pem,
            "ssl.keystore.key": key_pem,
        }
    if certificate is None and key is None:
        if password is not None:
            raise Untranslatable("ssl.key.password needs ssl.key.location and ssl.certificate.location beside it")
        return {}
    if certificate != key or certificate is None:
        raise Untranslatable(
            "Spark's Java client reads certificate and key from one file: put both PEMs into one and name it in "
            "ssl.certificate.location and ssl.key.location, or add ssl.keystore.location and ssl.keystore.type under "
            "kafka.java_client"
        )
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
