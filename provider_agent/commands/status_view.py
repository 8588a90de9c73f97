"""A node's status for people: lines, or a block that stays on the terminal and changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from provider_agent.commands.options import money
from provider_agent.config import DataFolder
from provider_agent.errors import AgentError
from provider_agent.node.desired_settings import calling
from provider_agent.node.status import read_status
from provider_agent.protocol import Earnings

if TYPE_CHECKING:
    from rich.console import Group

WATCH_SECONDS = 1.0
EARNINGS_SECONDS = 30.0

Status = dict[str, Any]


def status_lines(found: Status) -> list[str]:
    """The whole status, a fact a line."""
    state = f"running (pid {found['pid']})" if found["running"] else "not running"
    beat = f"; last beat {_ago(found['last_contact'].get('contact_at'))} ago" if found["last_contact"] else ""
    lines = [
        f"{found['name']}  node {found['node_id']}  of {found['server']}",
        f"agent: {state}; node: {found['node_state']}; executor: {found['executor']}{beat}",
        f"health: {found['health']}",
    ]
    if found["last_contact"].get("last_error"):
        lines.append(f"last error: {found['last_contact']['last_error']}")
    lines += [*update_lines(found), *(f"fix: {fix}" for fix in found["fixes"])]
    lines += _check_lines(found["last_check"])
    lines += _link_lines(found["links"])
    lines += serving_lines(found["serving"])
    lines += _loop_lines(found["loops"])
    for lease in found["leases"]:
        reason = f" ({lease['reason']})" if lease["reason"] else ""
        since = f"  since {lease['since'][:16].replace('T', ' ')} UTC" if lease["since"] else ""
        seconds = lease["billable_ms"] / 1000
        lines.append(
            f"lease {lease['lease_id']}  {lease['state']}{reason}  {lease['job_name']}{since}  {seconds:.1f} s"
        )
    return lines


def update_lines(found: Status) -> list[str]:
    """Version, wanted version, the newest update and the newest rollback."""
    updates = found["updates"]
    how = {"auto": "updates itself", "manual": "updates by hand", "none": "is not updated by the marketplace"}
    line = f"version: {found['version'] or 'unknown'} ({how[updates['mode']]})"
    if found["wanted_version"] and found["wanted_version"] != found["version"]:
        line += f"; wanted: {found['wanted_version']}"
    if updates["trial"]:
        line += f"; on trial: {updates['trial']}"
    lines = [line]
    if problem := updates["problem"]:
        lines.append(f"last try, {problem['at'][:16]} UTC: {problem['reason']}")
    if last := updates["last_update"]:
        lines.append(f"last update: {last.get('version')} {last.get('outcome')} {str(last.get('at'))[:16]} UTC")
    if rollback := updates["last_rollback"]:
        lines.append(f"last rollback: {rollback['version']} {rollback['at'][:16]} UTC: {rollback['reason']}")
    return lines


def _loop_lines(loops: list[dict[str, Any]]) -> list[str]:
    """The agent's loops that failed since it started; those that did not are left out."""
    return [
        f"loop {loop['name']}: failed {loop['failures']} times and was restarted; last error: {loop['last_error']}"
        for loop in loops
        if loop["failures"]
    ]


def _check_lines(check: dict[str, Any] | None) -> list[str]:
    """The newest check, and each number measured beside the number needed where it failed."""
    if check is None:
        return []
    lines = [f"last check: {check['state']}"]
    for finding in check["findings"]:
        if not finding["is_passed"]:
            numbers = f"measured {finding['measured']:g}, needed {finding['needed']:g}"
            lines.append(f"  {finding['device']}  {finding['what']}: {numbers}  {finding['message']}")
    return lines


def _link_lines(links: dict[str, dict[str, Any]]) -> list[str]:
    """What this node saw of the link to each other node of its fabric."""
    lines = []
    for peer, seen in sorted(links.items()):
        if not seen["is_reached"]:
            words = f"not reached: {seen['why']}"
        else:
            speeds = [seen["sent_bytes_per_second"], seen["received_bytes_per_second"]]
            slower = min((speed for speed in speeds if speed is not None), default=0)
            far = "" if seen["round_trip_us"] is None else f"{seen['round_trip_us'] / 1000:.3g} ms, "
            words = f"{far}{slower * 8 / 1e9:.3g} Gbit/s"
        lines.append(f"link to {peer} ({seen['address']}): {words}; {_ago(seen['at'])} ago")
    return lines


def serving_lines(serving: dict[str, Any]) -> list[str]:
    """The tunnels to the gateways, and what went through them; nothing of a node that does not serve now."""
    lines = []
    for tunnel in serving["tunnels"]:
        state = f"not there: {tunnel['why']}" if tunnel["why"] else "is being dialled"
        if tunnel["is_up"]:
            far = "" if tunnel["round_trip_ms"] is None else f", {tunnel['round_trip_ms']:.3g} ms"
            state = f"up {format_seconds(tunnel['up_seconds'])}{far}"
        lines.append(f"tunnel to {tunnel['gateway']}: {state}; {tunnel['leases']} replica(s)")
    for lease in serving["leases"]:
        failed = f" ({lease['failed']:,} failed)" if lease["failed"] else ""
        lines.append(
            f"serves lease {lease['lease_id']}: {lease['requests']:,} requests{failed}, {lease['in_flight']:,} open; "
            f"{lease['input_tokens']:,} tokens in, {lease['output_tokens']:,} out"
        )
    return lines


def watch_status(folder: DataFolder, *, as_json: bool) -> None:
    """Until Ctrl-C: a block that changes where there is a terminal, else the lines again whenever they changed."""
    pay = TodaysPay(folder)
    if as_json or not sys.stdout.isatty():
        _print_changes(folder, pay, as_json=as_json)
        return
    from rich.live import Live

    with Live(_block(read_status(folder), pay.line()), refresh_per_second=4) as live:
        while True:
            live.update(_block(read_status(folder), pay.line()))
            time.sleep(WATCH_SECONDS)


class TodaysPay:
    """Fetched from the server now and then, and kept while it does not answer."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._fetched_at = float("-inf")
        self._found: Earnings | None = None

    def line(self) -> str:
        """For people; never raises."""
        found = self.find()
        if found is None:
            return "pay: the server does not answer"
        return f"pay: {money(found.today_usd_micros)} today, {money(found.open_usd_micros)} open"

    def find(self) -> Earnings | None:
        """The newest earnings from the server."""
        if time.monotonic() - self._fetched_at >= EARNINGS_SECONDS:
            self._fetched_at = time.monotonic()
            with contextlib.suppress(AgentError):
                self._found = asyncio.run(_ask(self._folder))
        return self._found


async def _ask(folder: DataFolder) -> Earnings:
    async with calling(folder) as client:
        return await client.earnings()


def _print_changes(folder: DataFolder, pay: TodaysPay, *, as_json: bool) -> None:
    shown = ""
    while True:
        found = read_status(folder)
        today = pay.find()
        if as_json:
            text = json.dumps({**found, "earnings": today.model_dump(mode="json") if today else None})
        else:
            text = "\n".join([*status_lines(found), pay.line()])
        if _unhurried(text) != shown:
            shown = _unhurried(text)
            typer.echo(text)
            sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


def _unhurried(text: str) -> str:
    """Without digits: seconds that pass are no change."""
    return "".join(each for each in text if not each.isdigit())


def _block(found: Status, pay: str) -> Group:
    from rich.console import Group
    from rich.markup import escape
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    leases = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("what runs", "state", "for", "billed", "lease"):
        leases.add_column(column)
    running = [lease for lease in found["leases"] if not lease["has_ended"]]
    for lease in running:
        billed = f"{lease['billable_ms'] / 1000:.0f} s"
        leases.add_row(escape(lease["job_name"]), lease["state"], _ago(lease["since"]), billed, lease["lease_id"])
    contact = found["last_contact"]
    beat = f"last beat {_ago(contact.get('contact_at'))} ago" if contact.get("contact_at") else "no beat yet"
    agent = f"agent {'runs' if found['running'] else 'does not run'}, node {found['node_state']}, {beat}"
    lines = [agent, f"health: {found['health']}", *(f"fix: {fix}" for fix in found["fixes"]), pay]
    if contact.get("last_error"):
        lines.append(f"last error: {contact['last_error']}")
    lines += serving_lines(found["serving"])
    parts = [Text(line) for line in lines]
    body = Group(*parts, Text(""), leases if running else Text("nothing runs"))
    return Group(Panel(body, title=escape(f"{found['name']} of {found['server']}"), expand=False))


def _ago(iso: str | None) -> str:
    if not iso:
        return "?"
    return format_seconds((datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds())


def format_seconds(passed: float) -> str:
    """The two largest units: 2 d 3 h."""
    seconds = max(int(passed), 0)
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    shown = [f"{value} {unit}" for value, unit in parts if value][:2]
    return " ".join(shown) or "0 s"
