"""Follows a chain and books the events of our contracts in its final blocks; each event once, whatever the chain does.

    1. check    the newest block that was final must still be there; if not, payouts stop and a person has to look
    2. forget   blocks above the final one that the chain no longer has are orphans
    3. see      the blocks up to the head, by hash, each on its parent: shown, never booked
    4. believe  the logs of final blocks, page by page; a page and how far it reaches are one commit
    5. book     the events of final blocks, in their order, one transaction each (effects.py); those that failed
                before come after those that are new

It may be killed anywhere: each step begins with what is stored. Two indexers of one chain exclude each other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from billing.breaker import open_breaker
from billing.chain.errors import EndpointsDisagree, EndpointsUnreachable, FinalBlockGone
from billing.chain.events import effects
from billing.chain.reading import builds, confirmation
from billing.chain.reading.client import ChainClient, Header, Log, client_of
from billing.chain.transactions.planning import lock
from billing.models import ChainBlock, ChainEvent, EscrowContract
from billing.notices import alerts
from marketplace.foundation import clock
from marketplace.foundation.errors import SoukError

TIP_BLOCKS_MAX: Final = 1024  # above the final one that are followed one by one
PAGES_PER_RUN_MAX: Final = 20
REFUSALS_PER_RUN_MAX: Final = 16  # of a page: each halves it
EVENTS_PER_RUN_MAX: Final = 2_000
ATTEMPTS_UNTIL_ALERT: Final = 5
ERROR_CHARACTERS_MAX: Final = 1000
FINAL_AGE_MAX: Final = timedelta(hours=2)  # rollups whose blocks are final on their parent chain take half an hour

State = ChainBlock.State
log = logging.getLogger(__name__)


def follow(chain_id: int) -> int:
    """Steps 1 to 5; how many events were booked. Raises ChainError, having alerted the operators."""
    contracts = list(EscrowContract.objects.filter(chain_id=chain_id).order_by("pk"))
    if not contracts:
        return 0
    key = confirmation.key_of(chain_id)
    with lock(f"indexer:{chain_id}") as is_mine:
        if not is_mine:
            return 0
        try:
            client = client_of(chain_id)
            final = client.final()
            _check_final(client)
            _follow_tip(client, contracts, final)
            for contract in contracts:
                _believe(client, contract, final)
            _check_age(client, final)
        except Exception as error:
            severity = alerts.Severity.CRITICAL if isinstance(error, _GRAVE) else alerts.Severity.WARNING
            alerts.raise_once(key, kind="chain_indexer", severity=severity, subject=chain_id, message=str(error))
            if isinstance(error, FinalBlockGone):
                open_breaker(str(error))
            raise
        alerts.close(key)
        return book(chain_id)


def book(chain_id: int) -> int:
    """Step 5: an event that does not fit yet stays, and those after it are booked."""
    waiting = ChainEvent.objects.filter(block__chain_id=chain_id, block__state=State.FINAL, processed_at=None).order_by(
        "attempts", "block__number", "log_index"
    )
    booked = 0
    for event_id in list(waiting.values_list("pk", flat=True)[:EVENTS_PER_RUN_MAX]):
        booked += _book_one(event_id)
    return booked


_GRAVE: Final = (EndpointsDisagree, FinalBlockGone)


def _check_final(client: ChainClient) -> None:
    newest = _blocks(client).filter(state=State.FINAL).order_by("-number").first()
    if newest is not None and client.header(newest.number).hash != newest.hash:
        raise FinalBlockGone(chain_id=newest.chain_id, number=newest.number, hash=newest.hash)


def _check_age(client: ChainClient, final: int) -> None:
    """One endpoint that is frozen holds the chain back for all, and fails at nothing: so it has to be noticed."""
    key = f"chain:age:{client.config.chain_id}"
    made_at = datetime.fromtimestamp(client.header(final).timestamp, UTC)
    if client.config.is_development or clock.now() - made_at <= FINAL_AGE_MAX:
        alerts.close(key)
        return
    alerts.raise_once(
        key,
        kind="chain_stands_still",
        subject=client.config.chain_id,
        message=f"The newest final block of {client.config.name} that all endpoints have is {final}, of {made_at:%F %T}"
        " UTC: nothing later is booked. The chain stands still, or one of the endpoints does.",
    )


def _follow_tip(client: ChainClient, contracts: Sequence[EscrowContract], final: int) -> None:
    """Steps 2 and 3. A chain that changes during the read is read again by the next run."""
    # A restarted endpoint may report an older final block than before; the newest one that was trusted stays.
    final = max(final, *(contract.scanned_block for contract in contracts))
    for block in _blocks(client).filter(state=State.SEEN, number__gt=final).order_by("-number")[:TIP_BLOCKS_MAX]:
        if block.number <= client.head() and client.header(block.number).hash == block.hash:
            break
        _orphan(block)
    newest = _blocks(client).filter(state=State.SEEN, number__gt=final).order_by("-number").first()
    parent = newest.hash if newest else None
    first = newest.number + 1 if newest else final + 1
    for number in range(first, min(client.head(), final + TIP_BLOCKS_MAX) + 1):
        header = client.header(number)
        if parent is not None and header.parent_hash != parent:
            return
        logs = client.logs_of_block(header.hash, [contract.address for contract in contracts])
        with transaction.atomic():
            block = _store_block(client, header, State.SEEN)
            _store_events(block, logs)
        parent = header.hash


def _believe(client: ChainClient, contract: EscrowContract, final: int) -> None:
    """Step 4 for one contract."""
    size, refusals = client.config.blocks_per_query, 0
    for _ in range(PAGES_PER_RUN_MAX + REFUSALS_PER_RUN_MAX):
        first, last = contract.scanned_block + 1, min(contract.scanned_block + size, final)
        if first > last:
            return
        try:
            logs = client.logs(first, last, [contract.address])
        except EndpointsUnreachable as error:  # a node answers no more than so many blocks, or logs, at once
            refusals += 1
            if first == last or not error.details["is_refusal"] or refusals > REFUSALS_PER_RUN_MAX:
                raise
            size = (last - first + 1) // 2
            continue
        headers = {number: client.header(number) for number in sorted({*(one.block_number for one in logs), last})}
        _check_page(client, contract, logs, headers)
        with transaction.atomic():
            for header in headers.values():
                block = _store_block(client, header, State.FINAL)
                _store_events(block, [one for one in logs if one.block_hash == header.hash])
            stale = _blocks(client).filter(state=State.SEEN, number__lte=last, number__gte=first)
            final_numbers = _blocks(client).filter(state=State.FINAL, number__lte=last, number__gte=first)
            stale.filter(number__in=final_numbers.values("number")).update(state=State.ORPHANED)
            # What is left had no event of ours: it need not be kept.
            stale.filter(events=None).delete()
            stale.update(state=State.ORPHANED)
            _blocks(client).filter(state=State.FINAL, number__lt=last, events=None).delete()
            contract.scanned_block = last
            contract.save(update_fields=["scanned_block"])


def _check_page(client: ChainClient, contract: EscrowContract, logs: Sequence[Log], headers: dict[int, Header]) -> None:
    """Each log is of a block of the chain, and none that was seen in such a block is left out; or EndpointsDisagree.

    A node that has not indexed its newest logs yet answers without them, and two of one company may do so together.
    """
    for one in logs:
        if headers[one.block_number].hash != one.block_hash:
            raise EndpointsDisagree(chain_id=contract.chain_id, subject=f"the block of {one.tx_hash}")
    reported = {(one.block_hash, one.tx_hash, one.log_index) for one in logs}
    last = max(headers)
    seen = ChainEvent.objects.filter(
        block__chain_id=contract.chain_id,
        block__state=State.SEEN,
        block__number__gt=contract.scanned_block,
        block__number__lte=last,
        contract=contract.address,
    )
    for event in seen.select_related("block")[:EVENTS_PER_RUN_MAX]:
        block = event.block
        if (block.hash, event.tx_hash, event.log_index) in reported:
            continue
        if (headers.get(block.number) or client.header(block.number)).hash == block.hash:
            raise EndpointsDisagree(chain_id=contract.chain_id, subject=f"the logs of {event.tx_hash}")


def _store_block(client: ChainClient, header: Header, state: ChainBlock.State) -> ChainBlock:
    fields = {
        "number": header.number,
        "parent_hash": header.parent_hash,
        "mined_at": datetime.fromtimestamp(header.timestamp, UTC),
    }
    try:
        with transaction.atomic():
            block, _ = ChainBlock.objects.get_or_create(
                chain_id=client.config.chain_id, hash=header.hash, defaults=fields | {"state": state}
            )
            if block.state not in {state, State.FINAL}:  # an orphan came back, or what was seen is final
                block.state = state
                block.save(update_fields=["state"])
    except IntegrityError as error:  # another block of this number is final
        raise FinalBlockGone(chain_id=client.config.chain_id, number=header.number, hash="another block") from error
    return block


def _store_events(block: ChainBlock, logs: Sequence[Log]) -> None:
    decoded = [(one, builds.decode_log(builds.ESCROW, one)) for one in logs]
    ChainEvent.objects.bulk_create(
        [
            ChainEvent(
                block=block,
                tx_hash=one.tx_hash,
                log_index=one.log_index,
                contract=one.address,
                name=known[0],
                arguments=known[1],
            )
            for one, known in decoded
            if known is not None
        ],
        ignore_conflicts=True,
    )


def _orphan(block: ChainBlock) -> None:
    block.state = State.ORPHANED
    block.save(update_fields=["state"])
    log.warning("A block was orphaned. chain_id=%s number=%s hash=%s", block.chain_id, block.number, block.hash)


def _book_one(event_id: int) -> bool:
    key = f"chain:event:{event_id}"
    try:
        with transaction.atomic():
            event = (
                ChainEvent.objects.select_for_update(skip_locked=True, of=("self",))
                .select_related("block")
                .filter(pk=event_id, processed_at=None, block__state=State.FINAL)
                .first()
            )
            if event is None:
                return False
            effects.book(event)
            event.processed_at, event.last_error = clock.now(), ""
            event.save(update_fields=["processed_at", "last_error"])
    except Exception as error:  # whatever one event does to its verb, the others have their turn
        ChainEvent.objects.filter(pk=event_id).update(
            attempts=F("attempts") + 1, last_error=str(error)[:ERROR_CHARACTERS_MAX]
        )
        event = ChainEvent.objects.get(pk=event_id)
        log.warning(
            "An event could not be booked. event=%s error=%s", event, error, exc_info=not isinstance(error, SoukError)
        )
        if event.attempts >= ATTEMPTS_UNTIL_ALERT:
            message = f"{event} of the contract {event.contract} could not be booked: {error}"
            alerts.raise_once(key, kind="chain_event", severity="critical", subject=event_id, message=message)
        return False
    if event.attempts:
        alerts.close(key)
    return True


def _blocks(client: ChainClient) -> QuerySet[ChainBlock]:
    return ChainBlock.objects.filter(chain_id=client.config.chain_id)
