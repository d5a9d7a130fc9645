"""How topics are configured, as the brokers see it."""

from collections.abc import Iterable

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType


def topic_settings(admin: AdminClient, topics: Iterable[str], deadline_s: float = 15) -> dict[str, dict[str, str]]:
    """The brokers' view of each topic's configuration."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    answers = admin.describe_configs(resources, request_timeout=deadline_s) if resources else {}
    return {
        resource.name: {entry.name: entry.value for entry in future.result(deadline_s).values()}
        for resource, future in answers.items()
    }
