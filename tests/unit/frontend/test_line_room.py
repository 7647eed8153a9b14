"""How many lines a frontend runs: what its router says, within a setting."""

from services.frontend.placement.line_room import LineRoom


def test_a_frontend_runs_as_many_lines_as_its_router_says() -> None:
    room, more = LineRoom(100), list[int]()
    assert room.lines == 64, "no router has said anything"
    room.on_more = lambda: more.append(room.lines)
    for told in (30, 90, 20, 500, None):
        room.tell(told)
    assert more == [90, 100], "those that run go on when there is less"
    assert room.lines == 64
    assert LineRoom(10).lines == 10
