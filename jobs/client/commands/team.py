"""members: list, role, remove; invitations: list, create, revoke, accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.client.commands.options import Json, Server, Yes, ask, find_row, open_souk
from jobs.client.errors import UsageMistake

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire.organisation import MemberView

PANEL = "Account"
ROLES = ("owner", "member", "billing")
ROLES_HELP = "owner: everything; member: jobs and nodes; billing: money alone."

members = typer.Typer(no_args_is_help=True, help="Who belongs to your organisation.")
invitations = typer.Typer(no_args_is_help=True, help="Invite people to your organisation, or accept an invitation.")

Who = Annotated[str, typer.Argument(metavar="MEMBER", help="Their e-mail address or id, or how that begins.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(members, name="members", rich_help_panel=PANEL)
    app.add_typer(invitations, name="invitations", rich_help_panel=PANEL)
    for name, of_members in (("list", list_members), ("role", role), ("remove", remove)):
        members.command(name)(of_members)
    for name, command in (("list", list_invitations), ("create", create), ("revoke", revoke), ("accept", accept)):
        invitations.command(name)(command)


def list_members(server: Server = None, as_json: Json = False) -> None:
    """List who belongs to your organisation, and in which role.

    Example: souk members list
    """
    from rich.markup import escape

    from jobs.client.output import console, print_json, table

    with open_souk(server) as souk:
        found = souk.members()
    if as_json:
        print_json(found)
        return
    rows = [
        (escape(each.user.email), escape(each.user.name), each.role, f"{each.created_at:%Y-%m-%d}", str(each.user.id))
        for each in found
    ]
    console().print(table("", ("e-mail", "name", "role", "since", "id"), rows))


def role(
    member: Who,
    new_role: Annotated[str, typer.Argument(metavar="ROLE", help=ROLES_HELP)],
    *,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Give a member another role.

    Example: souk members role carol@example.org billing
    """
    from jobs.client.output import console, print_json

    _require_role(new_role)
    with open_souk(server) as souk:
        changed = souk.change_role(find_member(souk, member).user.id, new_role)
    if as_json:
        print_json(changed)
    else:
        console().print(f"{changed.user.email} is {changed.role} now.", markup=False)


def remove(member: Who, *, yes: Yes = False, server: Server = None, as_json: Json = False) -> None:
    """Take a member out of your organisation; what they started goes on.

    Example: souk members remove carol@example.org --yes
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        found = find_member(souk, member)
        if not yes and not ask(f"Take {found.user.email} out of the organisation?", as_json=as_json):
            raise typer.Abort
        souk.remove_member(found.user.id)
    if as_json:
        print_json({"removed": str(found.user.id), "email": found.user.email})
    else:
        console().print(f"{found.user.email} does not belong to the organisation any more.", markup=False)


def list_invitations(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that were accepted.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List who is invited, and until when.

    Example: souk invitations list
    """
    from rich.markup import escape

    from jobs.client.output import console, print_json, table

    with open_souk(server) as souk:
        found = [each for each in souk.invitations() if everything or each.accepted_at is None]
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("Nobody is invited. `souk invitations create E-MAIL` invites somebody.", markup=False)
        return
    rows = [
        (
            str(each.id),
            escape(each.email),
            each.role,
            f"{each.expires_at:%Y-%m-%d %H:%M}",
            f"{each.accepted_at:%Y-%m-%d}" if each.accepted_at else "",
        )
        for each in found
    ]
    console().print(table("", ("id", "e-mail", "role", "until (UTC)", "accepted"), rows))


def create(
    email: Annotated[str, typer.Argument(metavar="E-MAIL", help="Whom to invite; nobody else can accept it.")],
    *,
    new_role: Annotated[str, typer.Option("--role", help=ROLES_HELP)] = "member",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Invite somebody to your organisation; prints the invitation, which is shown once.

    Who has no account signs up with `souk signup --invitation ...`, else `souk invitations accept ...` does.

    Example: souk invitations create carol@example.org --role billing
    """
    from jobs.client.output import console, notice, print_json

    _require_role(new_role)
    with open_souk(server) as souk:
        made = souk.invite(email, new_role)
    if as_json:
        print_json(made)
        return
    notice(f"For {made.email}, until {made.expires_at:%Y-%m-%d %H:%M} UTC. This is the only time that it is shown:")
    console().print(made.token, markup=False)


def revoke(
    invitation: Annotated[str, typer.Argument(metavar="INVITATION", help="Its e-mail address or id.")],
    *,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Withdraw an invitation: nobody can accept it any more.

    Example: souk invitations revoke carol@example.org
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        rows = [each for each in souk.invitations() if each.accepted_at is None]
        listing = "souk invitations list"
        names = {"what": "open invitation", "listing": listing}
        found = find_row(rows, invitation, names=lambda each: {each.email, str(each.id)}, **names)
        souk.withdraw_invitation(found.id)
    if as_json:
        print_json({"revoked": str(found.id), "email": found.email})
    else:
        console().print(f"The invitation of {found.email} is withdrawn.", markup=False)


def accept(
    token: Annotated[str, typer.Argument(metavar="INVITATION", help="The text that you got.")],
    *,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Join the organisation that invited you; `souk login --organisation NAME` then acts for it.

    Example: souk invitations accept souki_...
    """
    from jobs.client.output import console, print_json

    with open_souk(server) as souk:
        name = souk.accept_invitation(token)
    if as_json:
        print_json({"organisation": name})
    else:
        console().print(f"You belong to {name}. To act for it: souk login --organisation {name!r}", markup=False)


def find_member(souk: Souk, text: str) -> MemberView:
    """By e-mail address or id; raises UsageMistake for none or several."""
    names = {"what": "member", "listing": "souk members list"}
    return find_row(souk.members(), text, names=lambda each: {each.user.email, str(each.user.id)}, **names)


def _require_role(text: str) -> None:
    if text not in ROLES:
        raise UsageMistake(f"{text!r} is no role; it is one of {', '.join(ROLES)}.")
