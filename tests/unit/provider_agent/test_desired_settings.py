"""Hours, windows and places in a gang that cannot be are refused where they are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from provider_agent.protocol import Away, GangPlace, WeeklyHours
from provider_agent.protocol.gangs import GANG_NETWORK, gang_address

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize("ends", [480, 479])
def test_hours_must_have_a_length(ends: int) -> None:
    with pytest.raises(ValidationError, match="hours must end after they begin"):
        WeeklyHours(day=0, begins=480, ends=ends)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_window_must_end_after_it_begins(seconds: int) -> None:
    with pytest.raises(ValidationError, match="a window must end after it begins"):
        Away(begins_at=NOON, ends_at=NOON + timedelta(seconds=seconds))


def test_each_rank_has_an_address_of_its_own_inside_the_network() -> None:
    ranks = range(GANG_NETWORK.num_addresses - 2)
    assert len({gang_address(rank) for rank in ranks}) == len(ranks)
    with pytest.raises(IndexError, match="no rank"):
        gang_address(len(ranks))


def test_an_overlay_is_sent_only_where_there_is_one() -> None:
    assert "overlay" not in GangPlace().model_dump()
    assert GangPlace(overlay="plain").model_dump()["overlay"] == "plain"
