"""Debian's HAProxy and nginx, as they are, with the files of configs/ before two servers: what a client sees through them is what a server says.

They are Debian's programs, unpacked by tools/deps.sh, which installs neither: that would start them. Each is started here in a folder of its own.
"""
import os
import shutil

from fronts import World, tests_of
from lib import ROOT, Skip, main

DEBIAN = os.path.join(ROOT, 'build', 'debian')
LIBRARIES = os.path.join(DEBIAN, 'usr', 'lib', os.uname().machine + '-linux-gnu')


def program(name):
    path = shutil.which(name, path=f'{DEBIAN}/usr/sbin:/usr/sbin:{os.environ["PATH"]}')
    if path is None:
        raise Skip(f'no {name} (tools/deps.sh test)')
    return path


def config(name, folder, workers, port):
    """The file of configs/ with these ports in the places of its own."""
    with open(os.path.join(ROOT, 'configs', name), encoding='utf-8') as f:
        text = f.read()
    for old, new in (('127.0.0.1:8000', workers[0]), ('127.0.0.1:8001', workers[1]), ('127.0.0.1:8080', port)):
        assert text.count(old) == 1, (name, old)
        text = text.replace(old, f'127.0.0.1:{new}')
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    return path


def haproxy(folder, workers, port):
    return [program('haproxy'), '-db', '-f', config('haproxy.cfg', folder, workers, port)]


def nginx(folder, workers, port):
    """The file is one for the http block: this is the rest, which Debian's own nginx.conf has otherwise."""
    own = config('nginx.conf', folder, workers, port)
    temporary = ' '.join(f'{kind}_temp_path {folder}/{kind};' for kind in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))
    path = os.path.join(folder, 'main.conf')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(f'daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\ninclude {own};\n}}\n')
    return [program('nginx'), '-e', 'stderr', '-p', folder, '-c', path]


ENV = {'LD_LIBRARY_PATH': LIBRARIES}
main(tests_of(World(haproxy, asks=['/readyz'], env=ENV), 'haproxy') | tests_of(World(nginx, env=ENV), 'nginx'))
