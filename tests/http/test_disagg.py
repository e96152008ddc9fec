"""What routers say of prefill and decode apart names a peer, or is refused by name; the answer of the other side says where blocks are."""
from lib import Server, chat, get, metrics, post, run_tests

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PEER = 673  # a seed: cached tokens are the peer's number and 1, and 100 more where it expects the prompt
NIXL = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [1, 2], "remote_engine_id": "quire-0", "remote_request_id": "x",
        "remote_host": "127.0.0.1", "remote_port": 7001, "tp_size": 1, "remote_num_tokens": 9}


def asked(port, body, headers=None, path=CHAT):
    """The peer that the engine is told of, and whether it expects the prompt."""
    r = post(port, path, {**(chat("hello " * 30) if path == CHAT else {"prompt": "hello " * 30}), "seed": PEER, "max_tokens": 1, **body}, headers)
    assert r.status == 200, r.body
    n = r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return n % 100 - 1, n >= 100


def hints(port):
    return tuple(metrics(port)['quire_peer_hints_total{result="%s"}' % r] for r in ("asked", "foreign_engine", "no_peer"))


def nixl(**fields):
    return {"kv_transfer_params": {**NIXL, **fields}}


def test_the_peer_that_a_router_names_is_asked_first():
    party = {"kv_request_id": "a", "remote_host": "127.0.0.1", "remote_port": 7001}
    with Server("--mock-rate", "0") as s:
        for path in (CHAT, COMPLETIONS):
            assert asked(s.port, {}, path=path) == (-1, False)
            assert asked(s.port, nixl(), path=path) == (0, False)
        assert asked(s.port, nixl(remote_host="::1")) == asked(s.port, nixl(remote_host="[::1]")) == (1, False)
        assert asked(s.port, nixl(remote_host="unix:/run/peer", remote_port=None)) == (2, False)
        assert asked(s.port, {"kv_transfer_params": {"remote_prefiller": party}}) == (0, True)
        assert asked(s.port, {"kv_transfer_params": {"remote_kv_source": party}}) == (0, False)
        assert asked(s.port, {"kv_transfer_params": {"remote_decoder": {"kv_request_id": "a"}}}) == (-1, False)
        assert asked(s.port, {}, {"x-kv-cache-source-host-port": "127.0.0.1:7001"}) == (0, False)
        assert asked(s.port, {"bootstrap_host": "127.0.0.1", "bootstrap_port": 7001, "bootstrap_room": 2**63 - 1}) == (0, True)
        assert asked(s.port, {"bootstrap_host": ["::1", "::1"], "bootstrap_port": [7001, None], "bootstrap_room": [1, 2]}) == (1, True)
        assert hints(s.port) == (10, 0, 0)


def test_an_engine_or_address_that_is_none_of_ours_is_counted_and_not_asked():
    with Server("--mock-rate", "0") as s:
        assert asked(s.port, nixl(remote_engine_id="9f3c")) == (-1, False)
        assert hints(s.port) == (0, 1, 0)
        assert asked(s.port, nixl(remote_host="example.org")) == asked(s.port, nixl(remote_port=None)) == (-1, False)
        assert asked(s.port, {"bootstrap_host": "127.0.0.1", "bootstrap_room": 1}) == (-1, False), "a port is missing"
        assert asked(s.port, {}, {"x-kv-cache-source-host-port": "x" * 400}) == asked(s.port, {}, {"x-kv-cache-source-host-port": "x"}) == (-1, False)
        assert hints(s.port) == (0, 1, 5)
        for nothing in ({}, {"do_remote_prefill": False}, {"do_remote_decode": None, "unknown": None}):
            assert asked(s.port, {"kv_transfer_params": nothing}) == (-1, False)
        assert hints(s.port) == (0, 1, 5)


def test_the_side_that_computes_for_another_says_where_its_blocks_are():
    wanted = {"kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
                                     "remote_host": None, "remote_port": None}, "max_tokens": 1}
    with Server("--mock-rate", "0") as s, Server("--mock-rate", "0", "--mock-deaf") as deaf:
        for path, body in ((CHAT, chat()), (COMPLETIONS, {"prompt": "hello"})):
            r = post(s.port, path, {**body, **wanted}).json()
            told = r["kv_transfer_params"]
            assert told.pop("remote_engine_id").startswith("quire-") and told.pop("remote_request_id") == r["id"], told
            assert told == {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [], "remote_host": "127.0.0.1", "remote_port": 7000,
                            "tp_size": 1, "remote_num_tokens": r["usage"]["prompt_tokens"]}, told
            assert "kv_transfer_params" not in post(s.port, path, body).json()
            error = post(deaf.port, path, {**body, **wanted}).error()
            assert error["param"] == "kv_transfer_params.do_remote_decode" and "--peer-listen" in error["message"], error
        error = post(s.port, CHAT, {**chat(), **wanted, "stream": True}).error()
        assert error["param"] == "kv_transfer_params.do_remote_decode" and "stream" in error["message"], error


def test_fields_that_cannot_be_honoured_are_refused_by_name():
    party = {"kv_request_id": "a", "remote_host": "127.0.0.1", "remote_port": 7001}
    with Server("--mock-rate", "0") as s:
        for body, param in ((nixl(transfer_id=1), "kv_transfer_params.transfer_id"), (nixl(do_remote_decode=True), "kv_transfer_params"),
                            (nixl(remote_host=None), "kv_transfer_params.remote_host"), (nixl(remote_host="x" * 241), "kv_transfer_params.remote_host"),
                            (nixl(remote_host=""), "kv_transfer_params.remote_host"), (nixl(remote_host=7), "kv_transfer_params.remote_host"),
                            (nixl(remote_port=0), "kv_transfer_params.remote_port"), (nixl(remote_port=65536), "kv_transfer_params.remote_port"),
                            (nixl(remote_port="7001"), "kv_transfer_params.remote_port"), (nixl(remote_block_ids=3), "kv_transfer_params.remote_block_ids"),
                            ({"kv_transfer_params": {"remote_prefiller": {}}}, "kv_transfer_params.remote_prefiller.remote_host"),
                            ({"kv_transfer_params": {"remote_kv_source": {**party, "x": 1}}}, "kv_transfer_params.remote_kv_source.x"),
                            ({"kv_transfer_params": {"remote_decoder": 1}}, "kv_transfer_params.remote_decoder"), ({"kv_transfer_params": 1}, "kv_transfer_params"),
                            ({"bootstrap_port": 7001}, "bootstrap_host"), ({"bootstrap_room": 1}, "bootstrap_host"),
                            ({"bootstrap_host": ["a", "b"]}, "bootstrap_host"), ({"bootstrap_host": "a", "bootstrap_port": [1, 2]}, "bootstrap_port"),
                            ({"bootstrap_host": "a", "bootstrap_port": 0}, "bootstrap_port"), ({"bootstrap_host": 1}, "bootstrap_host"),
                            ({"bootstrap_host": "a", "bootstrap_room": "a"}, "bootstrap_room"), ({**nixl(), "bootstrap_host": "a"}, "kv_transfer_params"),
                            ({"disagg_prefill_dp_rank": 1}, "disagg_prefill_dp_rank"), ({"routed_dp_rank": 1}, "routed_dp_rank")):
            for path, prompt in ((CHAT, chat()), (COMPLETIONS, {"prompt": "x"})):
                r = post(s.port, path, {**prompt, **body})
                assert r.status == 400 and r.error()["param"] == param, (body, r.body)
        for body in ({"bootstrap_host": None, "bootstrap_port": None, "bootstrap_room": None}, {"bootstrap_host": []}, {"kv_transfer_params": None},
                     {"disagg_prefill_dp_rank": 0}):
            assert post(s.port, CHAT, {**chat(), **body}).status == 200, body


def test_the_role_is_a_hint_that_says_which_side_a_bootstrap_host_means():
    own = {"bootstrap_host": "127.0.0.1", "bootstrap_port": 7000, "bootstrap_room": 1}
    other = {**own, "bootstrap_port": 7001}
    with Server("--mock-rate", "0", "--admin-key", "a", "--api-key", "u") as s:
        key = {"Authorization": "Bearer a"}

        def length(fields):
            r = post(s.port, CHAT, {**chat(), "max_tokens": 9, "min_tokens": 5, **fields}, key)
            return r.json()["usage"]["completion_tokens"]

        def mode():
            info, loads = (get(s.port, path, key).json() for path in ("/server_info", "/v1/loads"))
            assert info["disaggregation_bootstrap_port"] == 7000 and loads["loads"][0]["disaggregation"]["mode"] == info["disaggregation_mode"], info
            return info["disaggregation_mode"]

        assert mode() == "null" and length(own) == 1 and length(other) == 9, "by whose address it is"
        assert post(s.port, "/v1/role", {"role": "prefill"}, key).json() == {"role": "prefill"}
        assert mode() == "prefill" and length(own) == length(other) == 1
        assert post(s.port, "/v1/role", {"role": "decode"}, key).status == 200
        assert mode() == "decode" and length(own) == length(other) == 9
        for body, param in (({"role": "x"}, "role"), ({"role": 1}, "role"), ({}, "role")):
            assert post(s.port, "/v1/role", body, key).error()["param"] == param, body
        assert post(s.port, "/v1/role", {"role": "both"}, {"Authorization": "Bearer u"}).status == 403 and mode() == "decode"


if __name__ == "__main__":
    run_tests(globals())
