"""Tasks with programs that last: a server, a question, a long build, a shell's folder and variables, an environment."""

import psutil
import pytest

from tests.reference_agent.tasks.vocabulary import key, run, wait

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]

SERVER = """\
import http.server
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print("listening on port", server.server_address[1], flush=True)
server.serve_forever()
"""

PROBE = "python -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())'"


def test_a_server_is_started_in_the_background_probed_and_stopped(play, folder):
    (folder / "serve.py").write_text(SERVER)
    (folder / "page.txt").write_text("it works\n")
    started = []

    def model(told):
        told = yield run("python serve.py >server.log 2>&1 & echo the server is $!")
        started.append(int(told.ended(0).find(r"the server is (\d+)")[1]))
        told = yield run("for n in 1 2 3 4 5 6 7 8 9; do grep -s port server.log && break; sleep 0.3; done")
        port = told.ended(0).find(r"listening on port (\d+)")[1]
        told = yield run(f"{PROBE} http://127.0.0.1:{port}/page.txt")
        told.ended(0).find("^it works$")
        told = yield run("cat server.log")
        told.find("GET /page.txt")
        told = yield run(f"kill {started[0]}; sleep 0.3; {PROBE} http://127.0.0.1:{port}/page.txt")
        told.ended(1).find("Connection refused")
        return "The server answers. It is stopped again."

    end = play("Does serve.py serve page.txt? Stop it afterwards.", model)

    assert (end.status, end.words) == ("finished", "The server answers. It is stopped again.")
    assert not psutil.pid_exists(started[0]) or psutil.Process(started[0]).status() == psutil.STATUS_ZOMBIE


def test_a_program_that_asks_is_answered(play, folder):
    (folder / "new.py").write_text(
        "name = input('Name of the project? ')\n"
        "if input(f'Create {name}? [y/n] ') == 'y':\n    open(name, 'w').write('made')\n    print('Created.')\n"
    )

    def model(told):
        told = yield run("python new.py", timeout=2)
        told.ended(-1).find(r"Name of the project\?")
        told = yield key("rocket")
        told.ended(-1).find(r"Create rocket\? \[y/n\]")
        told = yield key("y")
        told.ended(0).find(r"Created\.")
        told = yield run("python -q", timeout=2)
        told.ended(-1)
        told = yield key("open('rocket').read() * 2")
        told.ended(-1).find("'mademade'")
        told = yield key("C-d")
        told.ended(0)
        return "The project is there."

    end = play("Create the project rocket by new.py, and look at it in a Python prompt.", model)

    assert end.status == "finished"
    assert (folder / "rocket").read_text() == "made"


def test_a_long_build_is_handed_back_while_it_is_silent_and_waited_for(play, folder):
    (folder / "build.sh").write_text("echo compiling\nsleep 31\necho linking\nsleep 1\necho built >out; cat out\n")
    waits = []

    def model(told):
        told = yield run("sh build.sh")
        told.ended(-1).find(r"compiling[\s\S]*still running")
        while told.code == -1:
            waits.append(told.text)
            told = yield wait()
        told.ended(0).find(r"linking\nbuilt")
        return "It is built."

    end = play("Build it.", model)

    assert (end.status, (folder / "out").read_text()) == ("finished", "built\n")
    assert 1 <= len(waits) <= 3


def test_the_folder_and_the_variables_of_a_shell_last(play, folder):
    def model(told):
        told = yield run("mkdir -p deep/below && cd deep/below && export COLOR=green && say() { echo it is $COLOR; }")
        told.ended(0)
        told = yield run("pwd; say; sh -c 'echo a child sees $COLOR'")
        told.ended(0).find(r"/deep/below\nit is green\na child sees green")
        told = yield run("cd .. && false")
        told.ended(1)
        told = yield run("say >result.txt; pwd")
        told.find(r"/deep$")
        return "It is in deep/result.txt."

    end = play("Set COLOR to green in deep/below, and write it to deep/result.txt.", model)

    assert end.status == "finished"
    assert (folder / "deep" / "result.txt").read_text() == "it is green\n"


def test_a_virtual_environment_is_activated_and_used(play, folder):
    (folder / "rocket.py").write_text("print('lift off')\n")

    def model(told):
        told = yield run("python -m venv --without-pip env && . env/bin/activate")
        told.ended(0)
        told = yield run("python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'")
        packages = told.ended(0).find(r"^/.*/env/lib/python[\d.]+/site-packages$")[0]
        told = yield run(f"mv rocket.py {packages}/ && python -m rocket")
        told.ended(0).find("lift off")
        told = yield run("deactivate && python -m rocket")
        told.ended(1).find("No module named rocket")
        return "rocket is in the environment alone."

    end = play("Install rocket.py in a virtual environment env, and nowhere else.", model)

    assert (end.status, end.words) == ("finished", "rocket is in the environment alone.")
