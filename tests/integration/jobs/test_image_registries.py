"""A job file whose image comes from where nodes fetch nothing is refused before anything is quoted or held."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.errors import JobsError
from jobs.models import Job, Quote
from jobs.spec import Spec
from marketplace.accounts.models import Organisation
from tests import stage

pytestmark = pytest.mark.django_db


def with_image(image: str) -> Spec:
    return stage.spec_of(image=image, command="python train.py", train=None, work=None, kind="command")


@pytest.mark.parametrize("image", ["169.254.169.254/x:1", "127.0.0.1:5000/x", "localhost/x", "quay.io:22/x"])
def test_image_of_the_providers_network_is_refused(alice: Organisation, image: str) -> None:
    with pytest.raises(JobsError, match=r"docker\.io, ghcr\.io") as caught:
        stage.quote(alice, with_image(image))
    assert caught.value.code == "image_not_allowed"
    assert not Quote.objects.exists()


def test_quote_does_not_outlive_the_list_that_it_was_made_under(alice: Organisation, bob: Any, settings: Any) -> None:
    spec = with_image("quay.io/alice/program:1")
    assert stage.quote(alice, spec)
    settings.SOUK_IMAGE_REGISTRIES = ["ghcr.io"]
    with pytest.raises(JobsError, match=r"quay\.io"):
        stage.submit(alice, spec)
    assert not Job.objects.exists()


def test_operator_may_allow_a_registry_of_its_own(alice: Organisation, bob: Any, settings: Any) -> None:
    settings.SOUK_IMAGE_REGISTRIES = ["10.0.0.5:5000"]
    assert stage.quote(alice, with_image("10.0.0.5:5000/x"))
