// A node of another DDS vendor: Fast DDS (2.x) speaking ROS 2's wire conventions, on the loopback interface only.
//
//   fastdds_peer DOMAIN
//
// It does what the lines of its standard input say, until that ends:
//
//   echo IN OUT TYPE QOS USER_DATA     reads topic IN and writes every sample, byte by byte as it came, to topic OUT
//   say TOPIC TYPE QOS USER_DATA HEX   writes one sample with these bytes (a CDR encapsulation header first)
//
// and tells what it sees, a line each:
//
//   ready COMMAND                      the endpoints of the command exist
//   heard TOPIC HEX                    a sample came; of more than 1024 bytes only their number and FNV-1a hash
//   writer|reader TOPIC TYPE USER_DATA an endpoint of somebody else was discovered
//
// Payloads pass through unread, as in temporeal_bridge.transports.dds.raw_type: no generated code, no type support.
// Topics and types are written as DDS has them: rt/cf1/odom, nav_msgs::msg::dds_::Odometry_.

#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/domain/DomainParticipantListener.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>

using namespace eprosima::fastdds::dds;
namespace rtps = eprosima::fastrtps::rtps;
using Bytes = std::vector<unsigned char>;

static std::mutex telling;

static void tell(const std::string& line) {
  std::lock_guard<std::mutex> guard(telling);
  std::cout << line << std::endl;
}

static std::string hex(const Bytes& bytes) {
  std::string out;
  char two[3];
  for (unsigned char byte : bytes) {
    std::snprintf(two, sizeof two, "%02x", byte);
    out += two;
  }
  return out;
}

static Bytes of_hex(const std::string& text) {
  Bytes out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<unsigned char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

// Short samples whole; of long ones the length and the FNV-1a hash (64 bit).
static std::string shown(const Bytes& bytes) {
  if (bytes.size() <= 1024) return hex(bytes);
  uint64_t hash = 14695981039346656037ull;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211ull;
  std::ostringstream out;
  out << bytes.size() << ":" << std::hex << hash;
  return out.str();
}

// A type whose samples are their own serialized payloads.
class Raw : public TopicDataType {
 public:
  explicit Raw(const std::string& name) {
    setName(name.c_str());
    m_typeSize = 4096;  // only where memory starts: histories grow
    m_isGetKeyDefined = false;
    auto_fill_type_object(false);
    auto_fill_type_information(false);
  }
  bool serialize(void* data, rtps::SerializedPayload_t* payload) override {
    const Bytes& bytes = *static_cast<Bytes*>(data);
    if (bytes.size() > payload->max_size) return false;
    std::memcpy(payload->data, bytes.data(), bytes.size());
    payload->length = static_cast<uint32_t>(bytes.size());
    payload->encapsulation = CDR_LE;
    return true;
  }
  bool deserialize(rtps::SerializedPayload_t* payload, void* data) override {
    static_cast<Bytes*>(data)->assign(payload->data, payload->data + payload->length);
    return true;
  }
  std::function<uint32_t()> getSerializedSizeProvider(void* data) override {
    return [data]() { return static_cast<uint32_t>(static_cast<Bytes*>(data)->size()); };
  }
  void* createData() override { return new Bytes; }
  void deleteData(void* data) override { delete static_cast<Bytes*>(data); }
  bool getKey(void*, rtps::InstanceHandle_t*, bool) override { return false; }
};

// ROS 2's profiles, by its own documentation: sensor data, default, latched.
template <class EndpointQos>
static EndpointQos qos_named(const std::string& name, const std::string& user_data, EndpointQos qos) {
  qos.reliability().kind = name == "sensor" ? BEST_EFFORT_RELIABILITY_QOS : RELIABLE_RELIABILITY_QOS;
  qos.durability().kind = name == "latched" ? TRANSIENT_LOCAL_DURABILITY_QOS : VOLATILE_DURABILITY_QOS;
  qos.history().kind = KEEP_LAST_HISTORY_QOS;
  qos.history().depth = name == "sensor" ? 5 : name == "latched" ? 1 : 10;
  qos.endpoint().history_memory_policy = rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
  qos.user_data().setValue(std::vector<rtps::octet>(user_data.begin(), user_data.end()));
  return qos;
}

struct Telltale : DomainParticipantListener {
  template <class Info>
  static void found(const char* kind, const Info& info) {
    const auto& data = info.m_qos.m_userData.getValue();
    std::string text(data.begin(), data.end());
    tell(std::string(kind) + " " + info.topicName().to_string() + " " + info.typeName().to_string() + " " + text);
  }
  void on_publisher_discovery(DomainParticipant*, rtps::WriterDiscoveryInfo&& info) override {
    if (info.status == rtps::WriterDiscoveryInfo::DISCOVERED_WRITER) found("writer", info.info);
  }
  void on_subscriber_discovery(DomainParticipant*, rtps::ReaderDiscoveryInfo&& info) override {
    if (info.status == rtps::ReaderDiscoveryInfo::DISCOVERED_READER) found("reader", info.info);
  }
};

struct Echo : DataReaderListener {
  std::string topic;
  DataWriter* out;
  Echo(std::string name, DataWriter* writer) : topic(std::move(name)), out(writer) {}
  void on_data_available(DataReader* reader) override {
    Bytes bytes;
    SampleInfo info;
    while (reader->take_next_sample(&bytes, &info) == ReturnCode_t::RETCODE_OK) {
      if (!info.valid_data) continue;
      tell("heard " + topic + " " + shown(bytes));
      out->write(&bytes);
    }
  }
};

class Peer {
 public:
  explicit Peer(uint32_t domain) {
    DomainParticipantQos qos;
    // one transport, one interface, no multicast, no shared memory: what this test is about goes over the wire
    auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    udp->interfaceWhiteList.push_back("127.0.0.1");
    udp->sendBufferSize = udp->receiveBufferSize = 4 << 20;
    udp->maxInitialPeersRange = 8;
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(udp);
    rtps::Locator_t here;
    rtps::IPLocator::setIPv4(here, "127.0.0.1");
    qos.wire_protocol().builtin.initialPeersList.push_back(here);
    qos.wire_protocol().builtin.metatrafficUnicastLocatorList.push_back(here);
    qos.wire_protocol().default_unicast_locator_list.push_back(here);
    const std::string enclave = "enclave=/;";
    qos.user_data().setValue(std::vector<rtps::octet>(enclave.begin(), enclave.end()));
    participant_ = DomainParticipantFactory::get_instance()->create_participant(
        domain, qos, &telltale_, StatusMask::none());
    if (!participant_) throw std::runtime_error("Fast DDS made no participant");
    publisher_ = participant_->create_publisher(PUBLISHER_QOS_DEFAULT);
    subscriber_ = participant_->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
  }
  ~Peer() {
    participant_->delete_contained_entities();
    DomainParticipantFactory::get_instance()->delete_participant(participant_);
  }
  void echo(const std::string& in, const std::string& out, const std::string& type, const std::string& qos,
            const std::string& user_data) {
    echoes_.push_back(std::make_unique<Echo>(in, writer(out, type, qos, user_data)));
    DataReader* made = subscriber_->create_datareader(
        topic(in, type), qos_named(qos, user_data, DATAREADER_QOS_DEFAULT), echoes_.back().get());
    if (!made) throw std::runtime_error("Fast DDS made no reader of " + in);
  }
  void say(const std::string& name, const std::string& type, const std::string& qos, const std::string& user_data,
           Bytes bytes) {
    writer(name, type, qos, user_data)->write(&bytes);
  }

 private:
  Topic* topic(const std::string& name, const std::string& type) {
    if (topics_.count(name)) return topics_[name];
    TypeSupport(new Raw(type)).register_type(participant_);
    Topic* made = participant_->create_topic(name, type, TOPIC_QOS_DEFAULT);
    if (!made) throw std::runtime_error("Fast DDS made no topic " + name);
    return topics_[name] = made;
  }
  DataWriter* writer(const std::string& name, const std::string& type, const std::string& qos,
                     const std::string& user_data) {
    if (writers_.count(name)) return writers_[name];
    DataWriterQos made = qos_named(qos, user_data, DATAWRITER_QOS_DEFAULT);
    made.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;  // an image does not fit into a datagram
    made.data_sharing().off();
    DataWriter* out = publisher_->create_datawriter(topic(name, type), made);
    if (!out) throw std::runtime_error("Fast DDS made no writer of " + name);
    return writers_[name] = out;
  }

  Telltale telltale_;
  DomainParticipant* participant_ = nullptr;
  Publisher* publisher_ = nullptr;
  Subscriber* subscriber_ = nullptr;
  std::map<std::string, Topic*> topics_;
  std::map<std::string, DataWriter*> writers_;
  std::vector<std::unique_ptr<Echo>> echoes_;
};

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: fastdds_peer DOMAIN" << std::endl;
    return 2;
  }
  try {
    Peer peer(static_cast<uint32_t>(std::stoul(words[1])));
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream text(line);
      std::string command, a, b, type, qos, user_data, bytes;
      text >> command;
      if (command == "echo" && text >> a >> b >> type >> qos >> user_data) {
        peer.echo(a, b, type, qos, user_data);
      } else if (command == "say" && text >> a >> type >> qos >> user_data >> bytes) {
        peer.say(a, type, qos, user_data, of_hex(bytes));
      } else {
        throw std::runtime_error("not understood: " + line);
      }
      tell("ready " + command + " " + a);
    }
  } catch (const std::exception& error) {
    std::cerr << "fastdds_peer: " << error.what() << std::endl;
    return 2;
  }
  return 0;
}
