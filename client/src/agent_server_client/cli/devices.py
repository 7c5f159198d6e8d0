"""Commands about your devices that ring: list, test, end. The console adds the one that it runs on."""

from collections.abc import Sequence

import click

from agent_server_client.cli.program import CommandSession, Failed, beginning_of, command, id_from, print_json
from agent_server_client.cli.shown import print_table, shortest, when
from agent_server_client.visible import in_line

#: what lists the ids of devices
_LISTING = "agentctl devices"

#: what is said where there are no devices
_NO_DEVICES = "No device of yours rings: open the console on it, and press “Ring this device” at Status"


@command(cls=click.Group, invoke_without_command=True)
def devices(session: CommandSession) -> None:
    """List, test and end your devices that ring when something waits."""
    if not click.get_current_context().invoked_subcommand:
        _list(session)


@command("ls")
def list_devices(session: CommandSession) -> None:
    """List your devices, the latest renewal first."""
    _list(session)


def _list(session: CommandSession) -> None:
    found = session.client().devices()
    if session.as_json:
        print_json(found)
    elif not found:
        session.err.print(_NO_DEVICES, style="dim")
    else:
        heads = ("ID", "NAME", "PUSH SERVICE", "SHOWS", "RENEWED", "LAST FAILURE")
        ids = shortest(one["id"] for one in found) if session.out.is_terminal else {}
        rows = [
            (
                ids.get(one["id"], one["id"]),
                in_line(one["name"]),
                in_line(one["host"]),
                one["shows"],
                when(session.out, one["renewed_at"]),
                in_line(one["last_failure"] or "–"),
            )
            for one in found
        ]
        print_table(session.out, heads, rows)


@command("test")
@click.argument("identity", metavar="ID", callback=id_from(_LISTING))
def test_device(session: CommandSession, identity: str) -> None:
    """Ring a device of yours.

    ID is that of a device, or its beginning.
    """
    outcome = session.client().test_device(*_whole(session, [identity]))
    if not outcome["delivered"]:
        raise Failed(1, f"{in_line(outcome['name'])} was not rung: {in_line(outcome['detail'])}")
    session.tell(outcome, f"Its push service took the test: {in_line(outcome['name'])} rings now")


@command("rm")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, callback=id_from(_LISTING))
def end_device(session: CommandSession, ids: tuple[str, ...]) -> None:
    """End devices of yours.

    They ring no more, and their notifications decide nothing. ID is that of a device, or its beginning.
    """
    whole = _whole(session, ids)
    for one in whole:
        session.client().end_device(one)
    session.tell(whole, f"Ended: {', '.join(whole)}", style="dim")


def _whole(session: CommandSession, ids: Sequence[str]) -> list[str]:
    known = [one["id"] for one in session.client().devices()]
    return [beginning_of("devices", known, one) for one in ids]


if isinstance(devices, click.Group):
    for _one in (list_devices, test_device, end_device):
        devices.add_command(_one)

COMMANDS = (devices,)
