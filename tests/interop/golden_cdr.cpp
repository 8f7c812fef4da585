// CDR bytes of ROS 2 messages, written by Fast CDR (eProsima's, the serializer under rmw_fastrtps), not by ours.
//
//   golden_cdr        prints "<type> <bytes in hexadecimal>" for every message of tests/golden/fastcdr_messages.json
//
// The order of the fields is written by hand from the .msg files; the same values stand in that JSON file. Each has
// lengths and neighbours chosen so that alignment shows: a wrong pad moves everything that follows.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <fastcdr/Cdr.h>
#include <fastcdr/FastBuffer.h>

using eprosima::fastcdr::Cdr;
using eprosima::fastcdr::FastBuffer;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;
using Strings = std::vector<std::string>;

template <class Body>
static void message(const char* type, Body body) {
  char memory[4096] = {};  // Fast CDR skips padding and leaves there what was; a reader must not look at it
  FastBuffer buffer(memory, sizeof memory);
  Cdr out(buffer, Cdr::LITTLE_ENDIANNESS, Cdr::DDS_CDR);
  out.serialize_encapsulation();
  body(out);
  std::printf("%s ", type);
  for (size_t i = 0; i < out.getSerializedDataLength(); ++i)
    std::printf("%02x", static_cast<unsigned char>(memory[i]));
  std::printf("\n");
}

static void length(Cdr& out, uint32_t count) { out << count; }  // of a sequence of structures

static void header(Cdr& out, int32_t sec, uint32_t nanosec, const std::string& frame) { out << sec << nanosec << frame; }

static void xyz(Cdr& out, double x, double y, double z) { out << x << y << z; }

static std::array<uint8_t, 16> gid(uint8_t first) {  // an endpoint's number: 16 bytes, each one more than the last
  std::array<uint8_t, 16> out{};
  for (uint8_t& byte : out) byte = first++;
  return out;
}

int main() {
  message("std_msgs/msg/Empty", [](Cdr& out) { out << uint8_t(0); });  // rosidl's member of an empty structure

  message("std_msgs/msg/UInt64", [](Cdr& out) { out << uint64_t(9007199254740993u); });

  message("std_msgs/msg/Header", [](Cdr& out) { header(out, -1, 999999999, "active 3"); });

  message("std_msgs/msg/Float32MultiArray", [](Cdr& out) {
    length(out, 2);  // layout.dim
    out << std::string("row") << uint32_t(2) << uint32_t(6);
    out << std::string("column") << uint32_t(3) << uint32_t(3);
    out << uint32_t(1);  // layout.data_offset
    out << Floats{0.5f, -1.25f, 3e-9f, 65504.0f, -0.0f, 1.0f};
  });

  message("std_msgs/msg/Float64MultiArray", [](Cdr& out) {
    length(out, 0);
    out << uint32_t(0) << Doubles{0.1, -2.5, 1e300};
  });

  message("geometry_msgs/msg/TwistStamped", [](Cdr& out) {
    header(out, 12, 34, "fr3_link0");
    xyz(out, 0.1, -0.2, 0.3);
    xyz(out, -1.5, 2.5, -3.5);
  });

  message("geometry_msgs/msg/PoseStamped", [](Cdr& out) {
    header(out, 12, 34, "w");
    xyz(out, 0.1, -0.2, 0.3);
    out << 0.5 << -0.5 << 0.5 << 0.5;
  });

  message("geometry_msgs/msg/PointStamped", [](Cdr& out) {
    header(out, 12, 34, "fr3_link0");
    xyz(out, 0.45, -0.3, 0.5);
  });

  message("nav_msgs/msg/Odometry", [](Cdr& out) {
    header(out, 100, 5, "world");
    out << std::string("cf1");
    xyz(out, 1.5, -2.5, 0.75);
    out << 0.0 << 0.6 << 0.0 << 0.8;
    std::array<double, 36> covariance{};
    covariance[0] = 0.01;
    covariance[35] = -7.0;
    out << covariance;
    xyz(out, 0.1, 0.2, 0.3);
    xyz(out, -0.4, -0.5, -0.6);
    covariance[0] = 0.02;
    out << covariance;
  });

  message("sensor_msgs/msg/JointState", [](Cdr& out) {
    header(out, 1700000000, 250000000, "fr3_link0");
    out << Strings{"fr3_joint1", "a", ""} << Doubles{0.25, -0.5, 3.0} << Doubles{} << Doubles{1.0, NAN, -2.0};
  });

  message("trajectory_msgs/msg/JointTrajectory", [](Cdr& out) {
    header(out, 0, 0, "");
    out << Strings{"fr3_joint1", "fr3_joint2"};
    length(out, 2);
    out << Doubles{0.1, 0.2} << Doubles{1.0, -1.0} << Doubles{} << Doubles{} << int32_t(0) << uint32_t(20000000);
    out << Doubles{0.3, 0.4} << Doubles{0.0, 0.0} << Doubles{5.0, 6.0} << Doubles{-7.0, 8.0} << int32_t(1)
        << uint32_t(1);
  });

  message("sensor_msgs/msg/Image", [](Cdr& out) {
    header(out, 1, 2, "wrist");
    out << uint32_t(1) << uint32_t(3) << std::string("mono16") << uint8_t(1) << uint32_t(6);
    out << Bytes{255, 254, 1, 2, 3, 4};
  });

  message("sensor_msgs/msg/CompressedImage", [](Cdr& out) {
    header(out, 1, 2, "wrist");
    out << std::string("rgb8; jpeg compressed bgr8") << Bytes{255, 216, 255, 224, 0, 16, 74};
  });

  message("diagnostic_msgs/msg/DiagnosticArray", [](Cdr& out) {
    header(out, 7, 8, "");
    length(out, 2);
    out << uint8_t(2) << std::string("guard") << std::string("stopped") << std::string("cf1");
    length(out, 2);
    out << std::string("code") << std::string("stale") << std::string("age_ms") << std::string("104.2");
    out << uint8_t(0) << std::string("") << std::string("ok") << std::string("");
    length(out, 0);
  });

  message("lifecycle_msgs/msg/State", [](Cdr& out) { out << uint8_t(3) << std::string("active"); });

  message("lifecycle_msgs/msg/TransitionEvent", [](Cdr& out) {
    out << uint64_t(1700000000000000000u);
    out << uint8_t(3) << std::string("activate");
    out << uint8_t(2) << std::string("inactive");
    out << uint8_t(3) << std::string("active");
  });

  message("crazyflie_interfaces/msg/LogDataGeneric", [](Cdr& out) {
    header(out, 5, 6, "cf231");
    out << uint32_t(123456) << Floats{1.5f, -2.5f, 90.0f};
  });

  message("crazyflie_interfaces/msg/FullState", [](Cdr& out) {
    header(out, 5, 6, "world");
    xyz(out, 1.0, 2.0, 3.0);
    out << 0.0 << 0.0 << 0.0 << 1.0;
    xyz(out, 0.1, 0.2, 0.3);
    xyz(out, 0.4, 0.5, 0.6);
    xyz(out, -9.0, 8.0, -7.0);
  });

  message("px4_msgs/msg/OffboardControlMode", [](Cdr& out) {
    out << uint64_t(1234567890123u) << false << false << false << false << true << false << false;
  });

  message("px4_msgs/msg/TrajectorySetpoint", [](Cdr& out) {
    out << uint64_t(42) << std::array<float, 3>{1.0f, 2.0f, -3.0f} << std::array<float, 3>{NAN, NAN, NAN}
        << std::array<float, 3>{0.5f, -0.5f, 9.75f} << std::array<float, 3>{0.0f, 0.0f, 0.0f} << -1.5f << 0.25f;
  });

  message("px4_msgs/msg/VehicleRatesSetpoint", [](Cdr& out) {
    out << uint64_t(42) << 0.5f << -0.25f << 2.0f << std::array<float, 3>{0.0f, 0.0f, -0.625f} << true;
  });

  message("px4_msgs/msg/ActuatorMotors", [](Cdr& out) {
    out << uint64_t(42) << uint64_t(41) << uint16_t(5)
        << std::array<float, 12>{0.5f, 0.25f, 0.75f, 1.0f, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  });

  message("px4_msgs/msg/VehicleOdometry", [](Cdr& out) {
    out << uint64_t(1000001) << uint64_t(1000000) << uint8_t(1) << std::array<float, 3>{1.0f, 2.0f, -3.0f}
        << std::array<float, 4>{0.5f, -0.5f, 0.5f, 0.5f} << uint8_t(1) << std::array<float, 3>{0.1f, 0.2f, 0.3f}
        << std::array<float, 3>{-0.1f, -0.2f, -0.3f} << std::array<float, 3>{0.01f, 0.02f, 0.03f}
        << std::array<float, 3>{0.001f, 0.002f, 0.003f} << std::array<float, 3>{0.5f, 0.25f, 0.125f} << uint8_t(7)
        << int8_t(-1);
  });

  message("px4_msgs/msg/VehicleCommand", [](Cdr& out) {
    out << uint64_t(42) << 1.0f << 6.0f << 0.0f << NAN << 47.5 << -122.25 << 10.0f << uint32_t(176) << uint8_t(1)
        << uint8_t(1) << uint8_t(1) << uint16_t(257) << uint8_t(0) << true;
  });

  message("px4_msgs/msg/VehicleStatus", [](Cdr& out) {
    out << uint64_t(42) << uint64_t(41) << uint64_t(40) << uint8_t(2) << uint8_t(3) << uint8_t(4) << uint64_t(39)
        << uint8_t(5) << uint8_t(14) << uint8_t(6) << uint32_t(0x7fffffff) << uint32_t(7) << uint16_t(257)
        << uint8_t(1) << uint8_t(2);
    out << true << false << uint8_t(3) << true << uint8_t(9) << false << true << false << true << false;
    out << uint8_t(2) << uint8_t(1) << uint8_t(8);
    out << true << false << true << false << true << false << true << false << true << false << true;
  });

  message("mavros_msgs/msg/State", [](Cdr& out) {
    header(out, 5, 6, "");
    out << true << true << false << true << std::string("OFFBOARD") << uint8_t(4);
  });

  message("mavros_msgs/msg/AttitudeTarget", [](Cdr& out) {
    header(out, 5, 6, "base_link");
    out << uint8_t(128) << 0.0 << 0.0 << 0.0 << 1.0;
    xyz(out, 0.5, -0.25, 2.0);
    out << 0.625f;
  });

  message("rmw_dds_common/msg/ParticipantEntitiesInfo", [](Cdr& out) {
    out << gid(1);
    length(out, 2);  // node_entities_info_seq
    out << std::string("/cf1") << std::string("guard_node");
    length(out, 2);  // reader_gid_seq
    out << gid(2) << gid(3);
    length(out, 1);  // writer_gid_seq
    out << gid(4);
    out << std::string("/") << std::string("peer");
    length(out, 0);
    length(out, 0);
  });
  return 0;
}
