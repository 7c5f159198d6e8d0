-- leave_place: free the place in a sandbox that was taken for a conversation which is not made.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 conversation id   3 "1": also where it counts as made
-- Returns  1 | 0: it has no such place
-- Cost  O(log p): p places of the sandbox
-- Idempotent  a repeat finds it free
local key = root .. ':places:' .. ARGV[1]
if ARGV[3] ~= '1' and (redis.call('ZSCORE', key, ARGV[2]) or '') == '9007199254740991' then return 0 end
return redis.call('ZREM', key, ARGV[2])
