-- Take messages out of a session by the first line of each, which is its id; how many there were.
local gone = {}
for _, id in ipairs(ARGV) do
    gone[id] = true
end
local removed = 0
for _, message in ipairs(redis.call('ZRANGE', KEYS[1], '1', '-1')) do
    if gone[string.sub(message, 1, string.find(message, '\n', 1, true) - 1)] then
        removed = removed + redis.call('ZREM', KEYS[1], message)
    end
end
if removed > 0 and redis.call('ZCARD', KEYS[1]) < 2 then
    local name = string.match(KEYS[1], ':session:(.+)$')
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', KEYS[2], name)
    redis.call('ZREM', KEYS[3], name)
    redis.call('ZREM', KEYS[4], name)
end
return removed
