-- leave_place: free the place in a sandbox of a conversation that is not created.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  conversation:text  made:flag even if it counts as created
-- Returns  flag: false if it has no such place
-- Cost  O(log p): p places of the sandbox
-- Idempotent  a repeat finds it free
local key = root .. ':places:' .. sandbox
if not made and (redis.call('ZSCORE', key, conversation) or '') == '9007199254740991' then return 0 end
return redis.call('ZREM', key, conversation)
