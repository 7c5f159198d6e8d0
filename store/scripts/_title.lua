-- _title: publishes a new title to followers, as an event that is not stored: agents have no event of a title. value:
-- JSON; iso: now, naive UTC text.
-- include: _log.lua
local function publish_title(value, iso)
  redis.call('PUBLISH', root .. ':signal', '{"id":"' .. next_id() .. '","timestamp":"' .. iso ..
    '","source":"environment","key":"title","value":' .. value .. ',"kind":"ConversationStateUpdateEvent"}')
end
