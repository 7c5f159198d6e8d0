-- list_grants: the rights of people, and the version of all.
-- KEYS  root of the access keys
-- ARGV  none
-- Returns  (version:bytes grants:json[]): the version is empty where there was never a grant
-- Cost  O(g): g grants
-- Idempotent  reads only
return {redis.call('GET', root .. ':grants_version') or '', redis.call('HVALS', root .. ':grants')}
