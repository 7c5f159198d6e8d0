-- list_grants: return the grants of people, and their version.
-- KEYS  root of the access keys
-- ARGV  none
-- Returns  (version:bytes grants:json[]): the version is empty if there was never a grant
-- Cost  O(g): g grants
-- Idempotent  reads only
local stored, grants = redis.call('HGETALL', root .. ':grants'), {}
for i = 2, #stored, 2 do grants[#grants + 1] = stored[i] end
return {redis.call('GET', root .. ':grants_version') or '', grants}
