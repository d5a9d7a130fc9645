"""The page of the policies' parameters says what the policies take."""

import pytest

from headgate.config.policy_reference import FROM_THE_FILE, MEANINGS, policy_page
from headgate.errors import ConfigError
from headgate.policies.registry import build_policy, parameters_of, policy_names


def test_the_committed_page_is_the_generated_one(request: pytest.FixtureRequest) -> None:
    page = request.config.rootpath / "docs" / "policy-parameters.md"
    assert page.read_text(encoding="utf-8") == policy_page(), (
        "run: python -m headgate.config.policy_reference > docs/policy-parameters.md"
    )


def test_what_it_says_is_said_of_parameters_that_there_are() -> None:
    there = {key for name in policy_names() for key in parameters_of(name)}
    assert MEANINGS.keys() <= there
    assert FROM_THE_FILE.keys() <= there


def test_a_parameter_that_a_policy_does_not_have_is_named_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match=r"policy 'slo' has no parameter 'thirft': did you mean 'thrift'\? it takes "):
        build_policy(
            "slo",
            "repair",
            consumer_capacity_bytes_per_s=2e6,
            packing_capacity_bytes_per_s=1.5e6,
            params={"thirft": 2},
        )
