-- leave_place: free the place in a sandbox that was taken for a conversation which is not made.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  conversation:text  made:flag also where it counts as made
-- Returns  flag: false where it has no such place
-- Cost  O(log p): p places of the sandbox
-- Idempotent  a repeat finds it free
local key = root .. ':places:' .. sandbox
if not made and (redis.call('ZSCORE', key, conversation) or '') == '9007199254740991' then return 0 end
return redis.call('ZREM', key, conversation)
